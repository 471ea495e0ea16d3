"""The agent's clocks. Logic takes the time as an argument; only the edge calls these."""

from __future__ import annotations

import time
from datetime import UTC, datetime

# On Linux CLOCK_MONOTONIC stops while the machine is suspended and CLOCK_BOOTTIME does not; on macOS, which lacks the
# latter, CLOCK_MONOTONIC goes on. A grant must run out during a suspension too.
_SUSPEND_AWARE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_seconds() -> float:
    """Seconds on a clock that never goes back and counts suspension."""
    return time.clock_gettime(_SUSPEND_AWARE)


def utc_now() -> datetime:
    """Wall-clock time, for reports alone: no decision depends on it."""
    return datetime.now(UTC)
