"""When a child that died is started again: at once the first time, later and later while it keeps dying."""

from __future__ import annotations

from dataclasses import dataclass, replace

FIRST_DELAY_SECONDS = 0.2
LONGEST_DELAY_SECONDS = 10.0
STEADY_SECONDS = 30.0
"""A child that ran so long has recovered: its next death is a first one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Restarts:
    """Times in seconds of one monotonic clock."""

    total: int = 0
    in_a_row: int = 0
    started_at: float = 0.0
    due_at: float | None = None


def note_start(restarts: Restarts, now: float) -> Restarts:
    return replace(restarts, started_at=now, due_at=None)


def note_death(restarts: Restarts, now: float) -> Restarts:
    in_a_row = 0 if now - restarts.started_at >= STEADY_SECONDS else restarts.in_a_row
    delay = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2**in_a_row)
    return replace(restarts, total=restarts.total + 1, in_a_row=in_a_row + 1, due_at=now + delay)


def is_due(restarts: Restarts, now: float) -> bool:
    return restarts.due_at is not None and now >= restarts.due_at
