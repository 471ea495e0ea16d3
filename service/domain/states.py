"""A job's statuses, its attempts' states, and the tables of what may follow what."""

from __future__ import annotations

from enum import StrEnum


class JobStatus(StrEnum):
    QUEUED = "queued"
    PROVISIONING = "provisioning"
    STARTING = "starting"
    RUNNING = "running"
    RECOVERING = "recovering"
    PAUSING = "pausing"
    PAUSED = "paused"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class AttemptState(StrEnum):
    INTENDED = "intended"
    LAUNCHING = "launching"
    UP = "up"
    DRAINING = "draining"
    TERMINATING = "terminating"
    GONE = "gone"


class Hold(StrEnum):
    """A job runs when no hold remains. A top-up clears `budget` only."""

    USER = "user"
    BUDGET = "budget"


class StatusReason(StrEnum):
    """Explains a state; never ends a job."""

    NO_CAPACITY = "no_capacity"
    NO_OFFER = "no_offer"
    LAUNCH_FAILED = "launch_failed"
    LAUNCH_RATE = "launch_rate"
    PRICE_UNKNOWN = "price_unknown"
    BUDGET_EXHAUSTED = "budget_exhausted"
    BUDGET_RESERVED = "budget_reserved"
    USER_PAUSED = "user_paused"
    PREEMPTED = "preempted"
    NODE_LOST = "node_lost"
    NODE_SILENT = "node_silent"
    INFRASTRUCTURE = "infrastructure"
    PRICE_ABOVE_CEILING = "price_above_ceiling"
    TERMINATION_UNCONFIRMED = "termination_unconfirmed"
    PROVIDER_UNAVAILABLE = "provider_unavailable"
    RETRIED = "retried"


class EndReason(StrEnum):
    """Why a job ends. Fixed on entering `stopping`; the first wins."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    USER_ERROR = "user_error"
    RECOVERY_LIMIT = "recovery_limit"
    NO_USABLE_CHECKPOINT = "no_usable_checkpoint"
    LAUNCH_REFUSED = "launch_refused"
    DEADLINE = "deadline"

    def to_status(self) -> JobStatus:
        return _END_STATUS.get(self, JobStatus.FAILED)


_END_STATUS = {EndReason.COMPLETED: JobStatus.SUCCEEDED, EndReason.CANCELLED: JobStatus.CANCELLED}


class AttemptCause(StrEnum):
    """Why an attempt ended."""

    PREEMPTED = "preempted"
    INFRASTRUCTURE = "infrastructure"
    SILENT = "silent"
    NO_CAPACITY = "no_capacity"
    LAUNCH_FAILED = "launch_failed"
    COMPLETED = "completed"
    DRAINED = "drained"
    USER_ERROR = "user_error"
    NO_USABLE_CHECKPOINT = "no_usable_checkpoint"
    STOPPED = "stopped"
    ORPHANED = "orphaned"


_S = JobStatus
JOB_TRANSITIONS: dict[JobStatus, frozenset[JobStatus]] = {
    _S.QUEUED: frozenset({_S.PROVISIONING, _S.PAUSED, _S.STOPPING}),
    _S.PROVISIONING: frozenset({_S.STARTING, _S.RECOVERING, _S.QUEUED, _S.PAUSING, _S.STOPPING}),
    _S.STARTING: frozenset({_S.RUNNING, _S.RECOVERING, _S.PAUSING, _S.STOPPING}),
    _S.RUNNING: frozenset({_S.RECOVERING, _S.PAUSING, _S.STOPPING}),
    _S.RECOVERING: frozenset({_S.PROVISIONING, _S.PAUSING, _S.STOPPING}),
    _S.PAUSING: frozenset({_S.PAUSED, _S.STOPPING}),
    _S.PAUSED: frozenset({_S.QUEUED, _S.STOPPING}),
    _S.STOPPING: frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED}),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset({_S.QUEUED}),
    _S.CANCELLED: frozenset(),
}

ATTEMPT_ORDER: tuple[AttemptState, ...] = tuple(AttemptState)
"""An attempt only moves forward, and may skip: any state may go to `terminating` or find itself `gone`."""

TERMINAL_STATUSES = frozenset({_S.SUCCEEDED, _S.FAILED, _S.CANCELLED})
ACTIVE_STATUSES = frozenset(set(JobStatus) - TERMINAL_STATUSES - {_S.PAUSED})


class IllegalTransition(Exception):
    """A write that the tables forbid: a defect of ours, never a user's error."""


def check_job_transition(before: JobStatus, after: JobStatus) -> None:
    """Errors: IllegalTransition. Staying is always legal."""
    if before != after and after not in JOB_TRANSITIONS[before]:
        raise IllegalTransition(f"job: {before} -> {after}")


def check_attempt_transition(before: AttemptState, after: AttemptState) -> None:
    """Errors: IllegalTransition. Staying is always legal."""
    if ATTEMPT_ORDER.index(after) < ATTEMPT_ORDER.index(before):
        raise IllegalTransition(f"attempt: {before} -> {after}")
