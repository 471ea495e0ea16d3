"""When a webhook delivery is tried, what an answer means, and when it is given up.

The delays are those that the Standard Webhooks specification recommends: ten tries over three days and three hours.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

DELAYS: tuple[timedelta, ...] = (
    timedelta(0),
    timedelta(seconds=5),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
    timedelta(hours=5),
    timedelta(hours=10),
    timedelta(hours=14),
    timedelta(hours=20),
    timedelta(hours=24),
)
"""What each try waits for after the one before it; the first waits for nothing."""

JITTER = 0.1
"""At most this share is added to a delay, so that a receiver that returns is not met by everything at once."""

_GONE = 410


class DeliveryState(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    DEAD = "dead"
    """Given up: the dead letter. A replay makes it pending again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What follows from one try. `due_at` is when to try again, while pending; `is_gone` disables the endpoint."""

    state: DeliveryState
    due_at: datetime | None = None
    is_gone: bool = False


def judge_try(*, tries: int, status: int | None, at: datetime, jitter: float) -> Verdict:
    """`tries` counts this one, `status` is the HTTP answer or None without one, `jitter` is in [0, 1)."""
    if status is not None and 200 <= status < 300:
        return Verdict(state=DeliveryState.DELIVERED)
    if status == _GONE:
        return Verdict(state=DeliveryState.DEAD, is_gone=True)
    due_at = retry_at(tries=tries, failed_at=at, jitter=jitter)
    return Verdict(state=DeliveryState.DEAD if due_at is None else DeliveryState.PENDING, due_at=due_at)


def retry_at(*, tries: int, failed_at: datetime, jitter: float) -> datetime | None:
    """When to try again after `tries` failures, or None when the schedule is at its end."""
    if tries >= len(DELAYS):
        return None
    return failed_at + DELAYS[tries] * (1 + JITTER * jitter)


def is_subscribed(event_types: list[str], event_type: str) -> bool:
    """An empty list takes every event; `job.*` takes every event whose type begins with `job.`."""
    return not event_types or any(
        event_type.startswith(wanted[:-1]) if wanted.endswith(".*") else event_type == wanted for wanted in event_types
    )
