"""The clock that entry points pass in. Logic takes `now` as an argument; claims use the database's own time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def system_clock() -> datetime:
    return datetime.now(UTC)
