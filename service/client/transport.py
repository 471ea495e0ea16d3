"""Requests with a key, bounded retries and problems as exceptions.

What is safe to repeat is repeated: reads, and writes that carry an Idempotency-Key (one key a call, the same at each
try). Other writes are tried again only when the connection was refused, so the service cannot have seen them.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx

from service.client.errors import ApiError, ServiceAway, StreamSilent

MAX_TRIES = 4
_MAX_WAIT_SECONDS = 10.0
_BUSY = frozenset({429, 502, 503, 504})
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
Param = str | int | float | bool | None | Sequence[str]
Params = Mapping[str, Param]


def is_loopback(url: str) -> bool:
    return urlsplit(url).hostname in _LOOPBACK


def retry_delay(tries: int, retry_after: str | None, jitter: float) -> float | None:
    """Seconds to wait before the next try, or None to give up. `tries` were made; `jitter` is in [0, 1)."""
    if tries >= MAX_TRIES:
        return None
    asked = float(retry_after) if retry_after and retry_after.isdigit() else 0.0
    return asked + 0.1 * 2**tries * (0.5 + jitter / 2) if asked <= _MAX_WAIT_SECONDS else None


class Transport:
    """One service at `url` (without `/v1`), as one key's holder. Close it, or use it in a `with`."""

    def __init__(
        self, url: str, key: str | None, *, timeout_seconds: float = 30, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.url = url.rstrip("/")
        self._sleep = sleep
        headers = {"User-Agent": "godwit-cli", "Accept": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(timeout_seconds, connect=5),
            trust_env=not is_loopback(self.url),  # a proxy of the environment cannot reach this machine's loopback
        )

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *_error: object) -> None:
        self._http.close()

    def get(self, path: str, params: Params | None = None) -> httpx.Response:
        return self._send("GET", path, params=params, is_repeatable=True)

    def post(
        self, path: str, body: object = None, *, params: Params | None = None, is_create: bool = False
    ) -> httpx.Response:
        """A create carries an Idempotency-Key."""
        headers = {"Idempotency-Key": str(uuid.uuid4())} if is_create else {}
        return self._send("POST", path, params=params, json=body, headers=headers, is_repeatable=is_create)

    def patch(self, path: str, body: object, *, etag: str | None = None) -> httpx.Response:
        return self._send("PATCH", path, json=body, headers={"If-Match": etag} if etag else {}, is_repeatable=False)

    def delete(self, path: str) -> httpx.Response:
        return self._send("DELETE", path, is_repeatable=True)

    def upload(self, path: str, content: bytes, *, content_type: str) -> httpx.Response:
        """The bytes as the body. What is named by its digest is safe to repeat."""
        headers = {"Content-Type": content_type}
        return self._send("POST", path, content=content, headers=headers, is_repeatable=True)

    @contextmanager
    def stream(
        self,
        path: str,
        *,
        params: Params | None = None,
        headers: Mapping[str, str] | None = None,
        silence_seconds: float = 60,
    ) -> Iterator[httpx.Response]:
        """An open answer, its status checked, its body not read. Errors: as every call, and StreamSilent; no retries."""
        timeout = httpx.Timeout(30, connect=5, read=silence_seconds)
        try:
            with self._http.stream("GET", path, params=_given(params), headers=headers, timeout=timeout) as response:
                if response.status_code >= 400:
                    response.read()
                    self._raise_for(response)
                yield response
        except httpx.ReadTimeout as error:
            raise StreamSilent from error
        except httpx.TransportError as error:
            raise ServiceAway(self.url, _words(error)) from error

    def _send(self, method: str, path: str, *, is_repeatable: bool, **request: Any) -> httpx.Response:
        tries = 0
        while True:
            tries += 1
            response, failure, may_repeat = self._try(method, path, request, is_repeatable)
            retry_after = response.headers.get("Retry-After") if response is not None else None
            delay = retry_delay(tries, retry_after, random.random()) if may_repeat else None  # noqa: S311 - jitter
            if delay is not None:
                self._sleep(delay)
                continue
            if response is None:
                raise ServiceAway(self.url, _words(failure)) from failure
            self._raise_for(response)
            return response

    def _try(
        self, method: str, path: str, request: dict[str, Any], is_repeatable: bool
    ) -> tuple[httpx.Response | None, Exception | None, bool]:
        """The answer or the failure, and whether another try is allowed."""
        arguments: dict[str, Any] = {**request, "params": _given(request.get("params"))}
        try:
            response = self._http.request(method, path, **arguments)
        except httpx.ConnectError as error:
            return None, error, True
        except (httpx.TransportError, httpx.InvalidURL) as error:
            return None, error, is_repeatable and isinstance(error, httpx.TransportError)
        return response, None, is_repeatable and response.status_code in _BUSY

    def _raise_for(self, response: httpx.Response) -> None:
        if response.status_code in (502, 503, 504):
            raise ServiceAway(self.url, str(ApiError.from_response(response)))
        if response.status_code >= 300:
            raise ApiError.from_response(response)


def _given(params: Params | None) -> dict[str, Any] | None:
    """Without what is None; a list is repeated."""
    return {name: value for name, value in params.items() if value is not None} if params else None


def _words(error: Exception | None) -> str:
    """A connection error in a user's words."""
    if isinstance(error, httpx.ConnectTimeout | httpx.ReadTimeout):
        return "no answer in time"
    if isinstance(error, httpx.ConnectError):
        return "connection refused" if "refused" in str(error) else str(error) or "cannot connect"
    return str(error) or type(error).__name__
