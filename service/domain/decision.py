"""What a decision says: the job's next status, what becomes of its attempts, and what to do in the world."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from service.domain.snapshot import Candidate
from service.domain.states import AttemptCause, AttemptState, EndReason, Hold, JobStatus, StatusReason

IMMEDIATELY = timedelta(0)


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptChange:
    """An attempt's next state. `cause` is set once; `gone_at` says until when a gone attempt cost money."""

    fence: int
    state: AttemptState
    cause: AttemptCause | None = None
    gone_at: datetime | None = None
    is_loss: bool = False
    """This change is where the loss was found: it is counted and told now, once."""
    is_alarm: bool = False
    """Its termination is unconfirmed past the bound: told now, once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NewAttempt:
    """A launch to intend. Admission by the budgets happens with the intent, or nothing of it does."""

    fence: int
    candidate: Candidate
    grant_until: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    fence: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Terminate:
    fence: int


Action = Launch | Terminate


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """`requeue_after` None means that only a wish can bring the job back."""

    status: JobStatus
    reason: StatusReason | None = None
    end_reason: EndReason | None = None
    attempts: tuple[AttemptChange, ...] = ()
    new_attempt: NewAttempt | None = None
    actions: tuple[Action, ...] = ()
    add_hold: Hold | None = None
    need_nano: int = 0
    """What the launch that is intended, or held back for money, must reserve."""
    is_deadline_missed: bool = False
    requeue_after: timedelta | None = IMMEDIATELY
