"""What the agent asks of the service, as a protocol, and its HTTP form.

The protocol is three verbs wide so that the same messages can travel another way (through the bucket, for nodes that
cannot reach the service) without the agent noticing.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Protocol, TypeVar

import httpx
from pydantic import ValidationError

from training.protocol.messages import (
    BUNDLE_PATH,
    CHECKPOINTS_PATH,
    HEARTBEAT_PATH,
    CheckpointReceipt,
    CheckpointRegistration,
    Heartbeat,
    Reply,
)

MAX_REPLY_BYTES = 4 * 1024 * 1024
_Answer = TypeVar("_Answer", Reply, CheckpointReceipt)
TIMEOUT = httpx.Timeout(10.0, connect=5.0)


class LinkDown(Exception):
    """No usable answer: unreachable, too slow, 5xx, 429. By itself it changes nothing; ask again later."""


class Refused(Exception):
    """409 `fenced`, 401 or 403: this node's attempt may do nothing more."""


class Conflict(Exception):
    """409 `checkpoint_conflict`: another digest is registered for the same checkpoint."""


class Rejected(Exception):
    """Any other 4xx: the service will not take this message, however often it is repeated."""


class Link(Protocol):
    """Errors of every verb: LinkDown, Refused, Rejected."""

    def send_heartbeat(self, heartbeat: Heartbeat) -> Reply: ...

    def register_checkpoint(self, registration: CheckpointRegistration) -> CheckpointReceipt:
        """Errors besides: Conflict."""
        ...

    def fetch_bundle(self, target: Path, max_bytes: int) -> str:
        """Write the bundle to `target` and return its sha256. Errors besides: OSError."""
        ...


class HttpLink:
    """The link over HTTPS. Never follows a redirect, never takes a proxy or credentials from the environment."""

    def __init__(self, service_url: str, token: str) -> None:
        self._client = httpx.Client(
            base_url=service_url.rstrip("/"),
            headers={"Authorization": f"Bearer {token}"},
            timeout=TIMEOUT,
            follow_redirects=False,
            trust_env=False,
        )

    def send_heartbeat(self, heartbeat: Heartbeat) -> Reply:
        body = self._post(HEARTBEAT_PATH, heartbeat.model_dump_json().encode())
        return _parsed(Reply, body)

    def register_checkpoint(self, registration: CheckpointRegistration) -> CheckpointReceipt:
        body = self._post(CHECKPOINTS_PATH, registration.model_dump_json().encode())
        return _parsed(CheckpointReceipt, body)

    def fetch_bundle(self, target: Path, max_bytes: int) -> str:
        hasher, size_bytes = hashlib.sha256(), 0
        try:
            with self._client.stream("GET", BUNDLE_PATH) as response, target.open("wb") as file:
                _raise_for_problem(response)
                for chunk in response.iter_raw(1024 * 1024):
                    size_bytes += len(chunk)
                    if size_bytes > max_bytes:
                        raise Rejected(f"the bundle is larger than {max_bytes} bytes")
                    hasher.update(chunk)
                    file.write(chunk)
        except httpx.HTTPError as error:
            raise LinkDown(type(error).__name__) from error
        return hasher.hexdigest()

    def _post(self, path: str, content: bytes) -> bytes:
        headers = {"Content-Type": "application/json"}
        try:
            with self._client.stream("POST", path, content=content, headers=headers) as response:
                _raise_for_problem(response)
                return read_bounded(response, MAX_REPLY_BYTES)
        except httpx.HTTPError as error:
            raise LinkDown(type(error).__name__) from error


def read_bounded(response: httpx.Response, max_bytes: int) -> bytes:
    """A streamed response's body. Errors: LinkDown past the limit."""
    body = b""
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > max_bytes:
            raise LinkDown(f"an answer of more than {max_bytes} bytes")
    return body


def _parsed(kind: type[_Answer], body: bytes) -> _Answer:
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise LinkDown(f"the answer is not a {kind.__name__}") from error


def _raise_for_problem(response: httpx.Response) -> None:
    status = response.status_code
    if status in (200, 201):
        return
    if status in (401, 403):
        raise Refused(f"HTTP {status}")
    if status == 409:
        _raise_for_conflict(_problem_type(response))
    if 400 <= status < 500 and status not in (408, 425, 429):
        raise Rejected(f"HTTP {status}")
    raise LinkDown(f"HTTP {status}")


def _raise_for_conflict(problem_type: str) -> None:
    if problem_type == "fenced":
        raise Refused("fenced")
    if problem_type == "checkpoint_conflict":
        raise Conflict(problem_type)


def _problem_type(response: httpx.Response) -> str:
    """The last word of the problem's `type`, which is a URI or a bare name."""
    try:
        problem = json.loads(read_bounded(response, MAX_REPLY_BYTES))
    except ValueError:
        return ""
    name = str(problem.get("type", "")) if isinstance(problem, dict) else ""
    return name.rstrip("/").rsplit("/", 1)[-1].rsplit(":", 1)[-1].rsplit("#", 1)[-1].replace("-", "_")
