"""Server-sent events: parsing, and following a stream across broken connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from service.client.errors import ServiceAway, StreamSilent
from service.client.transport import Params, Transport

SILENCE_SECONDS = 2.0
_RECONNECT_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerEvent:
    id: str | None
    event: str
    data: str


def parse_lines(lines: Iterable[str]) -> Iterator[ServerEvent]:
    """The events of a stream of lines. An event that was cut off before its blank line is dropped."""
    event_id: str | None = None
    event, data = "message", []
    for line in lines:
        if not line:
            if data:
                yield ServerEvent(id=event_id, event=event, data="\n".join(data))
            event, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            event = value
        elif name == "id":
            event_id = value


def split_lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Lines ended by LF or CRLF only: JSON may hold U+2028 and others that str.splitlines would cut at."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r").decode("utf-8", "replace")


def follow(
    transport: Transport,
    path: str,
    *,
    is_over: Callable[[], bool],
    params: Params | None = None,
    last_id: str | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[ServerEvent]:
    """Every event after `last_id`, reconnecting with Last-Event-ID whenever the connection ends or falls silent.

    A stream has no end of its own: after a silence `is_over` is asked, and one more silence ends it.
    Errors: ServiceAway at once at the first connection, later when reconnecting has failed for about ten seconds;
    ApiError at once.
    """
    failures, was_over, has_connected = 0, False, False
    while True:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        try:
            with transport.stream(path, params=params, headers=headers, silence_seconds=SILENCE_SECONDS) as response:
                failures, has_connected = 0, True
                for event in parse_lines(split_lines(response.iter_bytes())):
                    was_over = False
                    last_id = event.id or last_id
                    yield event
        except StreamSilent:
            if was_over:
                return
        except ServiceAway:
            if not has_connected or failures >= len(_RECONNECT_SECONDS):
                raise
            sleep(_RECONNECT_SECONDS[failures])
            failures += 1
            continue
        was_over = is_over()
