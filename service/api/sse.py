"""Server-sent events that hold no session: a short read every half second, comments to keep the line open."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import anyio
import anyio.to_thread
from fastapi import Header
from fastapi.responses import StreamingResponse
from sqlalchemy.exc import SQLAlchemyError

from service.api.problems import Problem

POLL_SECONDS = 0.5
COMMENT_SECONDS = 15.0
RECONNECT_MILLISECONDS = 1000
MAX_ID = 2**63 - 1

LastEventId = Annotated[str | None, Header(max_length=64, description="the id of the last event that was seen")]


@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One event; `data` is JSON, which has no line breaks."""

    id: int
    kind: str
    data: str

    def to_bytes(self) -> bytes:
        kind = "".join(character for character in self.kind if character.isprintable())
        return f"id: {self.id}\nevent: {kind}\ndata: {self.data}\n\n".encode()


Read = Callable[[int], Sequence[Message]]
"""Messages after an id, oldest first, bounded."""


def parse_last_event_id(last_event_id: str | None, default: int) -> int:
    """Errors: Problem 422."""
    if last_event_id is None:
        return default
    if not (last_event_id.isascii() and last_event_id.isdigit()) or int(last_event_id) > MAX_ID:
        raise Problem(422, "invalid", "Last-Event-ID: not an id of this stream", remedy="Leave it out to start over.")
    return int(last_event_id)


def stream(read: Read, *, after: int, closing: threading.Event) -> StreamingResponse:
    """Follows `read` until the client goes or the process ends. A database that is away only delays."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_follow(read, after, closing), media_type="text/event-stream", headers=headers)


async def _follow(read: Read, after: int, closing: threading.Event) -> AsyncIterator[bytes]:
    yield f"retry: {RECONNECT_MILLISECONDS}\n\n".encode()
    spoke_at = time.monotonic()
    while not closing.is_set():
        try:
            messages = await anyio.to_thread.run_sync(read, after)
        except SQLAlchemyError:
            messages = ()
        for message in messages:
            yield message.to_bytes()
            after = max(after, message.id)
        if messages:
            spoke_at = time.monotonic()
            continue
        if time.monotonic() - spoke_at > COMMENT_SECONDS:
            yield b": still here\n\n"
            spoke_at = time.monotonic()
        await anyio.sleep(POLL_SECONDS)
    yield b": the service restarts; come back with Last-Event-ID\n\n"
