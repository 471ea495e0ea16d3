"""An attempt with what its evidence says of it, and the few decisions that every status is made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from service.domain.decision import IMMEDIATELY, AttemptChange, Decision
from service.domain.snapshot import AttemptView, Snapshot
from service.domain.states import TERMINAL_STATUSES, AttemptCause, AttemptState, JobStatus, StatusReason


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """An attempt and what its evidence says of it."""

    view: AttemptView
    change: AttemptChange

    @property
    def is_live(self) -> bool:
        return self.change.state is not AttemptState.GONE


def is_ending(one: Judged) -> bool:
    return one.change.state in (AttemptState.DRAINING, AttemptState.TERMINATING, AttemptState.GONE)


def leave(one: Judged) -> Judged:
    """Drain what has run (there may be steps to save); end the rest."""
    if one.change.state in (AttemptState.DRAINING, AttemptState.TERMINATING, AttemptState.GONE):
        return one
    return drain(one) if one.view.has_run else terminate(one)


def drain(one: Judged) -> Judged:
    return replace(one, change=replace(one.change, state=AttemptState.DRAINING))


def terminate(one: Judged) -> Judged:
    """Nothing is terminated that was never asked for: it is gone as it stands, once no launch can be under way."""
    if one.change.state in (AttemptState.TERMINATING, AttemptState.GONE):
        return one
    cause = one.change.cause or AttemptCause.STOPPED
    return replace(one, change=replace(one.change, state=AttemptState.TERMINATING, cause=cause))


def list_changes(judged: tuple[Judged, ...]) -> tuple[AttemptChange, ...]:
    """Only what changes."""
    return tuple(
        one.change
        for one in judged
        if one.change.state is not one.view.state
        or one.change.cause not in (None, one.view.cause)
        or one.change.is_alarm
    )


def wait(
    snapshot: Snapshot, judged: tuple[Judged, ...], status: JobStatus, reason: StatusReason | None, *, after: timedelta
) -> Decision:
    if any(one.is_live for one in judged):
        after = IMMEDIATELY if has_moved(judged) else min(after, snapshot.terms.poll)
    return Decision(status=status, reason=reason, attempts=list_changes(judged), requeue_after=after)


def settle(snapshot: Snapshot, judged: tuple[Judged, ...], status: JobStatus, reason: StatusReason | None) -> Decision:
    """A status that nothing need be done for: it waits for a wish or its deadline, or goes on at once when it is new."""
    is_new = status is not snapshot.job.status
    after = IMMEDIATELY if is_new else until_deadline(snapshot)
    return Decision(status=status, reason=reason, attempts=list_changes(judged), requeue_after=after)


def keep(
    snapshot: Snapshot,
    judged: tuple[Judged, ...],
    reason: StatusReason | None,
    *,
    status: JobStatus | None = None,
) -> Decision:
    """Go on with the attempts as judged, and look again at once when anything moved, else after the poll period."""
    status = status or snapshot.job.status
    is_new = status is not snapshot.job.status or has_moved(judged)
    is_unconfirmed = any(one.change.is_alarm or one.view.is_alarmed for one in judged)
    return Decision(
        status=status,
        reason=StatusReason.TERMINATION_UNCONFIRMED if is_unconfirmed else reason,
        attempts=list_changes(judged),
        requeue_after=IMMEDIATELY if is_new else snapshot.terms.poll,
    )


def has_moved(judged: tuple[Judged, ...]) -> bool:
    return any(one.change.state is not one.view.state for one in judged)


def until_deadline(snapshot: Snapshot) -> timedelta | None:
    """A deadline still ahead is news when it comes, even to a job at rest."""
    if snapshot.job.deadline is None or is_past_deadline(snapshot):
        return None
    return snapshot.job.deadline - snapshot.now


def is_past_deadline(snapshot: Snapshot) -> bool:
    return (
        snapshot.job.deadline is not None
        and snapshot.now >= snapshot.job.deadline
        and snapshot.job.status not in TERMINAL_STATUSES
    )
