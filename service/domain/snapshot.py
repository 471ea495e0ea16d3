"""What a decision sees: frozen views of one job, its live attempts, its offers and its money at one instant."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from service.domain.observations import Observation
from service.domain.offers import Offer
from service.domain.states import AttemptCause, AttemptState, EndReason, Hold, JobStatus, StatusReason
from service.domain.terms import Terms


class ExitKind(StrEnum):
    """How a node's ranks ended, as the node reported it (the node protocol's `ExitKind`)."""

    COMPLETED = "completed"
    DRAINED = "drained"
    USER_ERROR = "user_error"
    INFRASTRUCTURE = "infrastructure"
    NO_USABLE_CHECKPOINT = "no_usable_checkpoint"


class LaunchFailure(StrEnum):
    """Why a launch came to nothing. After `unknown` a cluster may exist all the same."""

    NO_CAPACITY = "no_capacity"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeView:
    """The last word of one node."""

    node_rank: int
    heard_at: datetime
    has_notice: bool
    exit_kind: ExitKind | None


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptView:
    """One live attempt. `observation` is None when the provider did not answer: unknown, which is not dead."""

    fence: int
    state: AttemptState
    cause: AttemptCause | None
    offer_id: str
    is_spot: bool
    num_nodes: int
    intended_at: datetime
    launched_at: datetime | None
    tried_at: datetime | None
    next_try_at: datetime | None
    launch_tries: int
    launch_failure: LaunchFailure | None
    up_at: datetime | None
    has_run: bool
    """It has finished a new step (or, without metrics, its ranks have started): there may be something to save."""
    draining_at: datetime | None
    terminating_at: datetime | None
    is_alarmed: bool
    grant_until: datetime
    nodes: tuple[NodeView, ...]
    observation: Observation | None
    is_above_ceiling: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """An offer that meets the job's resources, with its price and the most it may cost."""

    offer: Offer
    hourly_nano: int
    ceiling_hourly_nano: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MoneyView:
    """Over all budgets that apply, the least. None where no budget applies.

    `available` is cap - spent - reserved; `unspent` is cap - spent, what could become available without a top-up.
    """

    available_nano: int | None
    unspent_nano: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class JobView:
    status: JobStatus
    reason: StatusReason | None
    end_reason: EndReason | None
    holds: frozenset[Hold]
    stop: EndReason | None
    """The stop that was asked for, irrevocable."""
    is_stop_now: bool
    is_retry: bool
    num_nodes: int
    fence: int
    faults_since_progress: int
    max_faults: int
    not_before: datetime | None
    launch_failure_count: int
    first_grant: timedelta
    """Start-up, one checkpoint interval: what the first grant covers."""
    deadline: datetime | None
    is_deadline_missed: bool
    """Already told."""
    stops_on_deadline: bool
    jitter: float
    """In [0, 1), fixed for the job: spreads the retries of many jobs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """`candidates` are ranked, best first; `reason_for_none` says why there is none.

    `service_returned_at` is the end of the service's own last silence: nodes' silence counts from then.
    `fence_floor` is the highest fence seen in database, cluster labels and bucket.
    """

    now: datetime
    terms: Terms
    job: JobView
    attempts: tuple[AttemptView, ...]
    candidates: tuple[Candidate, ...]
    reason_for_none: StatusReason
    money: MoneyView
    launch_slots: int
    service_returned_at: datetime
    fence_floor: int
