"""Interruption notices: one small reader a cloud, each asking its metadata endpoint, all behind `NoticeReader`.

Sources: AWS EC2 "Spot Instance interruption notices" and "rebalance recommendations" (IMDSv2), Google Compute Engine
"instance/preempted", Azure "Scheduled Events". On any machine at most one of them answers; the others stay quiet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Protocol

import httpx

from training.node.link import LinkDown, read_bounded
from training.protocol.launch_spec import METADATA_URL_ENV
from training.protocol.messages import Notice

METADATA_ADDRESS = "http://169.254.169.254"
GCE_HOST_ENV = "GCE_METADATA_HOST"
AZURE_URL_ENV = "GODWIT_AZURE_METADATA_ENDPOINT"
TIMEOUT = httpx.Timeout(2.0, connect=1.0)
MAX_BODY_BYTES = 256 * 1024
IMDS_TOKEN_SECONDS = 21_600

Clock = Callable[[], datetime]


class NoticeReader(Protocol):
    """Asks once. None: the endpoint answered and there is no notice. Errors: LinkDown when it is not there."""

    def read_notice(self) -> Notice | None: ...


def build_readers(environ: Mapping[str, str], clock: Clock) -> tuple[NoticeReader, ...]:
    """A reader for every cloud; the endpoints' addresses may be given in the environment."""
    gce_host = environ.get(GCE_HOST_ENV)
    gce_url = f"http://{gce_host}" if gce_host else METADATA_ADDRESS
    return (
        AwsReader(environ.get(METADATA_URL_ENV, METADATA_ADDRESS), clock),
        GceReader(gce_url, clock),
        AzureReader(environ.get(AZURE_URL_ENV, METADATA_ADDRESS), clock),
    )


class MetadataClient:
    """Bounded requests to one metadata endpoint."""

    def __init__(self, base_url: str) -> None:
        # A connection a request: rarely asked, and a kept one may be dead just when the notice comes.
        limits = httpx.Limits(max_keepalive_connections=0)
        self._client = httpx.Client(base_url=base_url.rstrip("/"), timeout=TIMEOUT, limits=limits, trust_env=False)

    def ask(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, httpx.Headers, str]:
        """Status, headers and text. Errors: LinkDown."""
        try:
            with self._client.stream(method, path, headers=headers) as response:
                body = read_bounded(response, MAX_BODY_BYTES)
                return response.status_code, response.headers, body.decode("utf-8", "replace")
        except httpx.HTTPError as error:
            raise LinkDown(type(error).__name__) from error


class AwsReader:
    """`spot/instance-action` announces an interruption (404: none), `events/recommendations/rebalance` a raised risk."""

    def __init__(self, base_url: str, clock: Clock) -> None:
        self._client, self._clock = MetadataClient(base_url), clock
        self._token: str | None = None

    def read_notice(self) -> Notice | None:
        action = self._get("/latest/meta-data/spot/instance-action")
        if action is not None:
            return Notice(terminate_at=_timestamp(action.get("time")), seen_at=self._clock())
        if self._get("/latest/meta-data/events/recommendations/rebalance") is not None:
            return Notice(kind="rebalance", seen_at=self._clock())
        return None

    def _get(self, path: str) -> dict[str, object] | None:
        if self._token is None:
            self._token = self._new_token()
        status, _, text = self._client.ask("GET", path, {"X-aws-ec2-metadata-token": self._token})
        if status == 401:
            self._token = None
            raise LinkDown("the metadata token is no longer good")
        if status == 404:
            return None
        if status != 200:
            raise LinkDown(f"HTTP {status}")
        return _json_object(text)

    def _new_token(self) -> str:
        headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(IMDS_TOKEN_SECONDS)}
        status, _, text = self._client.ask("PUT", "/latest/api/token", headers)
        if status != 200 or not text.isascii() or not text.strip():
            raise LinkDown(f"HTTP {status}")
        return text.strip()


class GceReader:
    """`instance/preempted` is TRUE from the preemption's start, 30 s before the machine stops."""

    def __init__(self, base_url: str, clock: Clock) -> None:
        self._client, self._clock = MetadataClient(base_url), clock

    def read_notice(self) -> Notice | None:
        path = "/computeMetadata/v1/instance/preempted"
        status, headers, text = self._client.ask("GET", path, {"Metadata-Flavor": "Google"})
        if status != 200 or headers.get("Metadata-Flavor") != "Google":
            raise LinkDown(f"HTTP {status}")
        return Notice(seen_at=self._clock()) if text.strip().upper() == "TRUE" else None


class AzureReader:
    """Scheduled Events of type Preempt. The list may name other machines of a scale set: those are not ours."""

    def __init__(self, base_url: str, clock: Clock) -> None:
        self._client, self._clock = MetadataClient(base_url), clock
        self._name: str | None = None

    def read_notice(self) -> Notice | None:
        for event in self._scheduled_events():
            if event.get("EventType") == "Preempt" and self._is_ours(event.get("Resources")):
                return Notice(terminate_at=_timestamp(event.get("NotBefore")), seen_at=self._clock())
        return None

    def _scheduled_events(self) -> list[dict[str, object]]:
        body = _json_object(self._ask("/metadata/scheduledevents?api-version=2020-07-01"))
        events = body.get("Events")
        if not isinstance(events, list):
            raise LinkDown("no list of events")
        return [event for event in events if isinstance(event, dict)]

    def _is_ours(self, resources: object) -> bool:
        if not isinstance(resources, list) or not resources:
            return True
        if self._name is None:
            try:
                self._name = self._ask("/metadata/instance/compute/name?api-version=2021-02-01&format=text").strip()
            except LinkDown:
                return True  # a needless drain costs less than a missed one
        return self._name in resources

    def _ask(self, path: str) -> str:
        status, _, text = self._client.ask("GET", path, {"Metadata": "true"})
        if status != 200:
            raise LinkDown(f"HTTP {status}")
        return text


def _json_object(text: str) -> dict[str, object]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LinkDown("the answer is not JSON") from error
    if not isinstance(body, dict):
        raise LinkDown("the answer is not an object")
    return body


def _timestamp(value: object) -> datetime | None:
    """ISO 8601 (AWS) or RFC 1123 (Azure); None for anything else, since the notice counts without its time."""
    if not isinstance(value, str):
        return None
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            parsed = parse(value)
        except ValueError:
            continue
        return parsed if parsed.tzinfo is not None else None
    return None
