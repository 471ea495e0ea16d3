"""events.md: the catalogue of events."""

from __future__ import annotations

from docs.generator.markdown import code, page, table
from service.domain.event_types import EVENT_FILTERS, EVENT_TYPES

_TEXT = """\
Every event is written in the transaction of what it tells of, and has an `id` that rises in the order of commit, a `type`,
a `job_id` (or none), the instant `at` and `data`. They are read by `godwit events`, by `GET /v1/events`, as a stream that
goes on from `Last-Event-ID`, and by webhooks (Standard Webhooks signatures; at least once, so look at `webhook-id`)."""


def write_events() -> str:
    groups = ", ".join(code(name) for name in EVENT_FILTERS if name.endswith(".*"))
    rows = [(code(name), meaning) for name, meaning in EVENT_TYPES.items()]
    return page(
        "Events",
        _TEXT,
        f"A webhook takes every event, or the types and groups that it names. Groups: {groups}.",
        table(("type", "when"), rows),
    )
