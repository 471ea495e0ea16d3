"""Routers whose requests run again when the database asks for it.

One try is one transaction: the session's dependency commits when the try ends, before the response is sent.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from enum import Enum
from typing import Any

import anyio
from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from sqlalchemy.exc import DBAPIError
from starlette.responses import Response

from service.api.problems import documented
from service.api.strict_json import StrictRequest
from service.db.session import is_retryable

MAX_TRIES = 4
_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class RunAgain(Exception):
    """The transaction lost a race that it should see the result of (a create with the same key)."""


class RetryingRoute(APIRoute):
    """Runs a request again, in a new transaction, after a deadlock, a serialization failure or a busy database."""

    def get_route_handler(self) -> _Handler:
        once = super().get_route_handler()

        async def handle(request: Request) -> Response:
            strict = StrictRequest(request.scope, request.receive)
            for attempt in range(1, MAX_TRIES + 1):
                try:
                    return await _run_once(once, strict)
                except (DBAPIError, RunAgain) as error:
                    if attempt == MAX_TRIES or not _may_run_again(error, strict):
                        raise
                await anyio.sleep(random.uniform(0, 0.05 * 2**attempt))  # noqa: S311 - jitter
            raise AssertionError("unreachable")

        return handle


async def _run_once(handler: _Handler, request: Request) -> Response:
    """The endpoint and the end of its function-scoped dependencies, the commit among them."""
    outer = request.scope.get("fastapi_function_astack")
    try:
        async with AsyncExitStack() as stack:
            request.scope["fastapi_function_astack"] = stack
            response = await handler(request)
    finally:
        request.scope["fastapi_function_astack"] = outer
    return response


def _may_run_again(error: Exception, request: Request) -> bool:
    has_streamed = getattr(request, "_stream_consumed", False) and not hasattr(request, "_body")
    return not has_streamed and (isinstance(error, RunAgain) or is_retryable(error))  # type: ignore[arg-type]


def make_router(prefix: str, tag: str, *, statuses: Sequence[int] = (401, 403, 404, 422, 429, 503)) -> APIRouter:
    """A router below `prefix` that documents the problems that any of its endpoints may answer."""
    tags: list[str | Enum] = [tag]
    return APIRouter(prefix=prefix, tags=tags, route_class=RetryingRoute, responses=documented(*statuses))
