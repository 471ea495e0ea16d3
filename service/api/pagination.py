"""Opaque cursors: a page's last position, which only the service reads."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, Field

from service.api.problems import Problem

T = TypeVar("T")
MAX_LIMIT = 200

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="items on the page")]
Cursor = Annotated[str | None, Query(max_length=512, description="`next_cursor` of the page before")]


class Page(BaseModel, Generic[T]):
    items: list[T]
    next_cursor: str | None = Field(default=None, description="null on the last page")


def encode_cursor(*position: str | int) -> str:
    return base64.urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")


def decode_id_cursor(cursor: str | None) -> int | None:
    """The row id that a page follows. Errors: Problem 422."""
    position = _decode(cursor, 1)
    if position is None:
        return None
    if type(position[0]) is not int or not 0 <= position[0] < 2**63:
        raise _bad_cursor()
    return position[0]


def decode_time_cursor(cursor: str | None) -> tuple[datetime, str] | None:
    """The instant and the id that a page follows. Errors: Problem 422."""
    position = _decode(cursor, 2)
    if position is None:
        return None
    try:
        at = datetime.fromisoformat(position[0])  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise _bad_cursor() from error
    if at.tzinfo is None or not isinstance(position[1], str):
        raise _bad_cursor()
    return at, position[1]


def _decode(cursor: str | None, num_parts: int) -> list[str | int] | None:
    if cursor is None:
        return None
    try:
        position = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except ValueError as error:
        raise _bad_cursor() from error
    if not isinstance(position, list) or len(position) != num_parts or "\0" in str(position):
        raise _bad_cursor()
    return position


def _bad_cursor() -> Problem:
    remedy = "Use a page's next_cursor as it is, or leave it out."
    return Problem(422, "invalid_cursor", "cursor: not one of this service's", remedy=remedy)
