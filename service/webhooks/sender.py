"""One POST, safely: pinned addresses, no redirects, no proxies, a deadline for the whole and a bound on what is read.

Made of httpcore's connections, which follow nothing and read no environment. The name stays in the Host header and in
TLS, so the certificate is checked against what the user registered.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import httpcore
import httpx

from service.webhooks.ssrf import Refused, Resolver, Target, parse_target, resolve_by_system, resolve_safely

TIMEOUT_SECONDS = 12.0
EXCERPT_CHARACTERS = 2000
_MAX_READ_BYTES = 8192
_WRITE_BYTES = 4096
_FAILURES = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, OSError, UnicodeError)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came of a POST. `status` is None when there was no answer, and `error` says why."""

    status: int | None
    excerpt: str | None
    error: str | None
    latency_ms: int


class WebhookSender:
    """Holds no connection between POSTs and may be shared by threads."""

    def __init__(
        self,
        *,
        allow_private: bool,
        resolver: Resolver = resolve_by_system,
        timeout_seconds: float = TIMEOUT_SECONDS,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._allow_private = allow_private
        self._resolver = resolver
        self._timeout_seconds = timeout_seconds
        self._given_ssl_context = ssl_context

    @cached_property
    def _ssl_context(self) -> ssl.SSLContext:
        return self._given_ssl_context or httpx.create_ssl_context(trust_env=False)

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Never raises for what a receiver or a name server does; that is the answer's `error`."""
        started = time.monotonic()
        status, excerpt, error = None, None, None
        try:
            target = parse_target(url, allow_private=self._allow_private)
            addresses = resolve_safely(target, self._resolver, allow_private=self._allow_private)
            status, excerpt = self._exchange(target, addresses, headers, body)
        except Refused as refusal:
            error = f"refused: {refusal}"
        except (httpcore.TimeoutException, TimeoutError):
            error = f"no complete answer within {self._timeout_seconds:g} s"
        except _FAILURES as failure:
            error = f"{type(failure).__name__}: {failure}"
        if status is not None and 300 <= status < 400:
            error = "redirects are not followed; register the final URL"
        latency_ms = round((time.monotonic() - started) * 1000)
        return Answer(status=status, excerpt=excerpt, error=error and error[:500], latency_ms=latency_ms)

    def _exchange(
        self, target: Target, addresses: Iterable[str], headers: Mapping[str, str], body: bytes
    ) -> tuple[int, str]:
        backend = _PinnedBackend(tuple(addresses), time.monotonic() + self._timeout_seconds)
        origin = httpcore.Origin(target.scheme.encode(), target.host.encode(), target.port)
        full_headers = [("Host", target.authority), ("Connection", "close"), *headers.items()]
        full_headers.append(("Content-Length", str(len(body))))
        url = httpcore.URL(scheme=origin.scheme, host=origin.host, port=origin.port, target=target.path.encode())
        context = self._ssl_context if target.scheme == "https" else None
        with httpcore.HTTPConnection(origin, ssl_context=context, network_backend=backend) as connection:
            response = connection.handle_request(httpcore.Request("POST", url, headers=full_headers, content=body))
            try:
                return response.status, _read_excerpt(response)
            finally:
                response.close()


def _read_excerpt(response: httpcore.Response) -> str:
    """The first of the answer, made harmless to show. The status has been given: what ends the rest early is no failure."""
    read = b""
    with suppress(*_FAILURES):
        for chunk in response.iter_stream():
            read += chunk
            if len(read) >= _MAX_READ_BYTES:
                break
    text = read[:_MAX_READ_BYTES].decode("utf-8", "replace")[:EXCERPT_CHARACTERS]
    return "".join(character if character.isprintable() or character == "\n" else "�" for character in text)


class _PinnedBackend(httpcore.NetworkBackend):
    """Connects to the given addresses alone, whatever host is asked for, and lets nothing outlast the deadline."""

    def __init__(self, addresses: tuple[str, ...], deadline: float) -> None:
        self._addresses, self._deadline = addresses, deadline
        self._network = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,  # noqa: ARG002 - the pin: the name was resolved and judged before
        port: int,
        timeout: float | None = None,  # noqa: ARG002 - the deadline rules
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        failure: Exception = httpcore.ConnectError("no address")
        for left, address in zip(range(len(self._addresses), 0, -1), self._addresses, strict=True):
            try:
                share = _remaining(self._deadline) / left
                stream = self._network.connect_tcp(address, port, share, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return _DeadlineStream(stream, self._deadline)
        raise failure


class _DeadlineStream(httpcore.NetworkStream):
    """A stream whose every step gets only what is left of the whole: a receiver that drips bytes gains no time."""

    def __init__(self, stream: httpcore.NetworkStream, deadline: float) -> None:
        self._stream, self._deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002
        return self._stream.read(max_bytes, _remaining(self._deadline))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002
        for start in range(0, len(buffer), _WRITE_BYTES):
            self._stream.write(buffer[start : start + _WRITE_BYTES], _remaining(self._deadline))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ARG002
    ) -> httpcore.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, _remaining(self._deadline))
        return _DeadlineStream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _remaining(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline of the whole exchange")
    return left
