"""Entity tags: a write says which version it means."""

from __future__ import annotations

import hashlib
from typing import Annotated

from fastapi import Header
from pydantic import BaseModel

from service.api.problems import Problem

IfMatch = Annotated[str | None, Header(max_length=256, description="the ETag of the version that is meant, or `*`")]


def etag_of(body: BaseModel) -> str:
    """A tag of everything that is shown."""
    return f'"{hashlib.sha256(body.model_dump_json().encode()).hexdigest()[:24]}"'


def require_match(if_match: str | None, current: str) -> None:
    """Errors: Problem 428 without a tag, 412 with an old one."""
    if if_match is None:
        raise Problem(
            428, "precondition_required", "If-Match is missing.", remedy="Send the ETag that GET answered with."
        )
    if if_match.strip() != "*" and current not in (tag.strip() for tag in if_match.split(",")):
        raise Problem(412, "precondition_failed", "It has changed meanwhile.", remedy="Read it again, then repeat.")
