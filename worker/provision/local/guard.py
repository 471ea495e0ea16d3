"""Nothing reaches the control verbs without the bearer token, and no body over the bound is read."""

from __future__ import annotations

import hmac

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from worker.provision.local.wire import MAX_BODY_BYTES


class Guard:
    """ASGI middleware. Metadata paths (`/nodes/…`) are open, as on a real machine, and take no body at all."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refuse(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refuse(self, scope: Scope) -> JSONResponse | None:
        headers = dict(scope["headers"])
        is_metadata = scope["path"].startswith("/nodes/")
        if not is_metadata and not hmac.compare_digest(headers.get(b"authorization", b""), self._expected):
            return _problem(401, "unauthorized", "the bearer token is missing or wrong")
        if b"transfer-encoding" in headers:
            return _problem(411, "length_required", "send the body with its length")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > (0 if is_metadata else MAX_BODY_BYTES):
            return _problem(413, "too_large", "the body is over the bound")
        return None


def _problem(status: int, kind: str, detail: str) -> JSONResponse:
    return JSONResponse({"type": kind, "detail": detail}, status_code=status)
