"""Bounds on what a request may carry, held while its bytes arrive."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import Problem, invalid, to_response

_HANG_UP = {"Connection": "close"}
"""Nobody wants the rest of a body that is refused."""


class BodyLimit:
    """Refuses a body over its path's limit with 413, by its declared length or as it is streamed; and NUL in addresses."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, by_path: dict[str, int]) -> None:
        self._app, self._max_bytes, self._by_path = app, max_bytes, by_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._by_path.get(scope["path"], self._max_bytes)
        problem = _refuse_address(scope) or _refuse_length(scope, limit)
        if problem is not None:
            await to_response(problem, scope.get("godwit.request_id"))(scope, receive, send)
            return
        await self._app(scope, _counting(receive, limit), send)


def _counting(receive: Receive, limit: int) -> Receive:
    num_bytes = 0

    async def bounded() -> Message:
        nonlocal num_bytes
        message = await receive()
        num_bytes += len(message.get("body", b""))
        if num_bytes > limit:
            raise _too_large(limit)
        return message

    return bounded


def _refuse_length(scope: Scope, limit: int) -> Problem | None:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value[:20]) > limit:
            return _too_large(limit)
    return None


def _refuse_address(scope: Scope) -> Problem | None:
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        return invalid("path", "NUL characters are not allowed", "Remove the NUL.")
    return None


def _too_large(limit: int) -> Problem:
    remedy = "Send less, or raise the service's limit."
    return Problem(413, "too_large", f"The body is over the limit of {limit} bytes.", remedy=remedy, headers=_HANG_UP)
