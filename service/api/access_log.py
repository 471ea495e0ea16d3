"""Every request gets an id, a log line, a latency and the security headers. Bodies, queries and keys are never logged."""

from __future__ import annotations

import re
import secrets
import time

import structlog
from prometheus_client import Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.rate_limit import SCOPE_KEY

_log = structlog.get_logger("godwit.access")
_REQUEST_ID = re.compile(rb"^[A-Za-z0-9._-]{8,64}$")
_SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_API_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


class AccessLog:
    """The outermost middleware. A caller may name the request by `X-Request-Id`."""

    def __init__(self, app: ASGIApp, *, latency: Histogram) -> None:
        self._app, self._latency = app, latency

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = scope["godwit.request_id"] = _request_id(scope)
        started, status = time.perf_counter(), 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_headers(scope, message)]
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        finally:
            self._record(scope, request_id, status, time.perf_counter() - started)

    def _record(self, scope: Scope, request_id: str, status: int, seconds: float) -> None:
        route = _template(scope)
        self._latency.labels(method=scope["method"], route=route, status=f"{status // 100}xx").observe(seconds)
        if route not in ("/livez", "/readyz", "/metrics"):
            _log.info(
                "request",
                request_id=request_id,
                method=scope["method"],
                route=route,
                status=status,
                milliseconds=round(seconds * 1000, 1),
            )


def _template(scope: Scope) -> str:
    """The route's pattern, not the path: ids are neither labels nor log noise."""
    context = scope.get("route")
    return getattr(context, "path", None) or "unmatched"


def _request_id(scope: Scope) -> str:
    given = dict(scope["headers"]).get(b"x-request-id", b"")
    return given.decode() if _REQUEST_ID.match(given) else secrets.token_hex(8)


def _headers(scope: Scope, message: Message) -> list[tuple[bytes, bytes]]:
    present = {name.lower() for name, _ in message["headers"]}
    is_api = scope["path"].startswith(("/v1", "/node"))
    added = [*_SECURITY_HEADERS, *(_API_HEADERS if is_api else ())]
    added += [(name.encode(), value.encode()) for name, value in scope.get(SCOPE_KEY, {}).items()]
    added.append((b"x-request-id", scope["godwit.request_id"].encode()))
    return [(name, value) for name, value in added if name not in present]
