"""The reconciler's judgement: `decide(snapshot) -> Decision`, a pure function.

First each live attempt is judged by its own evidence. Then the job's status follows from its wishes (a stop, holds, a
retry) and from what the attempts have come to, by one small function a status; the table at the end lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from service.domain.decision import IMMEDIATELY, Action, AttemptChange, Decision, Launch, NewAttempt, Terminate
from service.domain.grants import covered_until
from service.domain.judge import FAULTS, is_fenced_off, judge_attempt
from service.domain.money import floor_second, reserved_nano
from service.domain.observations import ClusterState
from service.domain.snapshot import AttemptView, Candidate, Snapshot
from service.domain.states import (
    TERMINAL_STATUSES,
    AttemptCause,
    AttemptState,
    EndReason,
    Hold,
    JobStatus,
    StatusReason,
    check_job_transition,
)

MAX_LAUNCH_TRIES = 6
"""Asks of one launch that the provider did not answer, before the attempt is given up."""

_ENDS = {
    AttemptCause.COMPLETED: EndReason.COMPLETED,
    AttemptCause.USER_ERROR: EndReason.USER_ERROR,
    AttemptCause.NO_USABLE_CHECKPOINT: EndReason.NO_USABLE_CHECKPOINT,
}
_LOSS_REASONS = {
    AttemptCause.PREEMPTED: StatusReason.PREEMPTED,
    AttemptCause.SILENT: StatusReason.NODE_SILENT,
    AttemptCause.INFRASTRUCTURE: StatusReason.INFRASTRUCTURE,
    AttemptCause.LAUNCH_FAILED: StatusReason.LAUNCH_FAILED,
    AttemptCause.NO_CAPACITY: StatusReason.NO_CAPACITY,
}
_HOLD_REASONS = {Hold.BUDGET: StatusReason.BUDGET_EXHAUSTED, Hold.USER: StatusReason.USER_PAUSED}


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """An attempt and what its evidence says of it."""

    view: AttemptView
    change: AttemptChange

    @property
    def is_live(self) -> bool:
        return self.change.state is not AttemptState.GONE


def decide(snapshot: Snapshot) -> Decision:
    """What follows from the snapshot. The result obeys the transition table; deciding again on it changes nothing more."""
    judged = tuple(
        Judged(view=view, change=_judge(view, snapshot)) for view in sorted(snapshot.attempts, key=lambda a: a.fence)
    )
    decision = _DECIDERS[snapshot.job.status](snapshot, judged)
    check_job_transition(snapshot.job.status, decision.status)
    is_missed = _is_past_deadline(snapshot) and not snapshot.job.is_deadline_missed
    return replace(decision, actions=_list_actions(snapshot, decision), is_deadline_missed=is_missed)


def _judge(view: AttemptView, snapshot: Snapshot) -> AttemptChange:
    change = judge_attempt(view, now=snapshot.now, terms=snapshot.terms, returned_at=snapshot.service_returned_at)
    is_unanswered = view.launched_at is None and view.observation is not None and not view.nodes
    if change.cause is None and is_unanswered and view.launch_tries >= MAX_LAUNCH_TRIES:
        cause = AttemptCause.LAUNCH_FAILED
        return replace(change, state=AttemptState.TERMINATING, cause=cause, is_loss=True)
    return change


# ---- one function a status ------------------------------------------------------------------------------------------


def _decide_queued(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    if end := _find_end(snapshot, judged):
        return _stop(snapshot, judged, end)
    if snapshot.job.holds:
        return _pause(snapshot, judged)
    return _try_launch(snapshot, judged, waiting=JobStatus.QUEUED)


def _decide_provisioning(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    if decision := _decide_wishes(snapshot, judged):
        return decision
    current = judged[-1] if judged else None
    if current is None or current.change.state is AttemptState.GONE:
        return _back_to_queue(snapshot, judged)
    if current.change.cause is AttemptCause.NO_CAPACITY:
        return _keep(snapshot, judged, StatusReason.NO_CAPACITY)
    if _is_ending(current):
        return _recover(snapshot, judged)
    if current.change.state is AttemptState.UP:
        return _keep(snapshot, judged, None, status=JobStatus.STARTING)
    return _keep(snapshot, judged, None)


def _decide_starting(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    if decision := _decide_wishes(snapshot, judged):
        return decision
    if not judged or _is_ending(judged[-1]):
        return _recover(snapshot, judged)
    has_run = judged[-1].view.has_run
    return _keep(snapshot, judged, None, status=JobStatus.RUNNING if has_run else JobStatus.STARTING)


def _decide_running(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    if decision := _decide_wishes(snapshot, judged):
        return decision
    if not judged or _is_ending(judged[-1]):
        return _recover(snapshot, judged)
    current = judged[-1]
    if current.view.is_above_ceiling:
        return _keep(
            snapshot, (*judged[:-1], _drain(current)), StatusReason.PRICE_ABOVE_CEILING, status=JobStatus.RECOVERING
        )
    return _keep(snapshot, judged, None)


def _decide_recovering(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    if decision := _decide_wishes(snapshot, judged):
        return decision
    return _try_launch(snapshot, judged, waiting=JobStatus.RECOVERING)


def _decide_pausing(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    if end := _find_end(snapshot, judged):
        return _stop(snapshot, judged, end)
    return _pause(snapshot, judged)


def _decide_paused(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    if end := _find_end(snapshot, judged):
        return _stop(snapshot, judged, end)
    if snapshot.job.holds:
        return _settle(snapshot, judged, JobStatus.PAUSED, _hold_reason(snapshot))
    return _settle(snapshot, judged, JobStatus.QUEUED, None)


def _decide_stopping(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    end = snapshot.job.end_reason
    assert end is not None, "a stopping job has its end reason"
    keeps_drain = end in (EndReason.CANCELLED, EndReason.DEADLINE) and not snapshot.job.is_stop_now
    leaving = tuple(_leave(one) if keeps_drain else _terminate(one) for one in judged)
    if any(one.is_live for one in leaving):
        return replace(_keep(snapshot, leaving, snapshot.job.reason), end_reason=end)
    return replace(_settle(snapshot, leaving, end.to_status(), None), end_reason=end, requeue_after=None)


def _decide_failed(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    if snapshot.job.is_retry:
        return _settle(snapshot, judged, JobStatus.QUEUED, StatusReason.RETRIED)
    return _decide_ended(snapshot, judged)


def _decide_ended(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    return Decision(
        status=snapshot.job.status,
        reason=snapshot.job.reason,
        end_reason=snapshot.job.end_reason,
        attempts=_list_changes(tuple(_terminate(one) for one in judged)),
        requeue_after=snapshot.terms.poll if judged else None,
    )


# ---- what the statuses share ----------------------------------------------------------------------------------------


def _decide_wishes(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision | None:
    """A stop or a hold, which any status with nodes obeys."""
    if end := _find_end(snapshot, judged):
        return _stop(snapshot, judged, end)
    if not snapshot.job.holds:
        return None
    leaving = tuple(_leave(one) for one in judged)
    return _keep(snapshot, leaving, _hold_reason(snapshot), status=JobStatus.PAUSING)


def _pause(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    """Paused once every attempt is gone; even a fenced-off one that nobody confirms costs money until then."""
    leaving = tuple(_leave(one) for one in judged)
    if any(one.is_live for one in leaving):
        return _keep(snapshot, leaving, _hold_reason(snapshot))
    return _settle(snapshot, leaving, JobStatus.PAUSED, _hold_reason(snapshot))


def _find_end(snapshot: Snapshot, judged: tuple[Judged, ...]) -> EndReason | None:
    """The first reason to end: what the ranks came to, then what was asked for, then a limit."""
    for one in judged:
        if end := _ENDS.get(one.change.cause) if one.change.cause else None:
            return end
    if snapshot.job.stop is not None:
        return snapshot.job.stop
    new_faults = sum(one.change.is_loss and one.change.cause in FAULTS for one in judged)
    if new_faults and snapshot.job.faults_since_progress + new_faults > snapshot.job.max_faults:
        return EndReason.RECOVERY_LIMIT
    return EndReason.DEADLINE if snapshot.job.stops_on_deadline and _is_past_deadline(snapshot) else None


def _stop(snapshot: Snapshot, judged: tuple[Judged, ...], end: EndReason) -> Decision:
    keeps_drain = end in (EndReason.CANCELLED, EndReason.DEADLINE) and not snapshot.job.is_stop_now
    leaving = tuple(_leave(one) if keeps_drain else _terminate(one) for one in judged)
    return Decision(status=JobStatus.STOPPING, reason=None, end_reason=end, attempts=_list_changes(leaving))


def _recover(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    cause = judged[-1].change.cause if judged else None
    reason = _LOSS_REASONS.get(cause, StatusReason.NODE_LOST) if cause else StatusReason.NODE_LOST
    return _keep(snapshot, judged, reason, status=JobStatus.RECOVERING)


def _back_to_queue(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    """Nothing is up. Another offer may have room, so look again at once; the queue itself knows how to wait."""
    reason = StatusReason.NO_CAPACITY if judged else snapshot.job.reason
    return _keep(snapshot, judged, reason, status=JobStatus.QUEUED)


def _try_launch(snapshot: Snapshot, judged: tuple[Judged, ...], *, waiting: JobStatus) -> Decision:
    """Intend a launch on the best candidate, or stay and say why not."""
    job, now = snapshot.job, snapshot.now
    if not all(not one.is_live or is_fenced_off(one.view, now=now, terms=snapshot.terms) for one in judged):
        return _keep(snapshot, judged, job.reason)
    if job.not_before is not None and now < job.not_before:
        return _wait(snapshot, judged, waiting, job.reason, after=job.not_before - now)
    if not snapshot.candidates:
        return _wait(snapshot, judged, waiting, snapshot.reason_for_none, after=_backoff(snapshot))
    if snapshot.launch_slots < 1:
        return _wait(snapshot, judged, waiting, StatusReason.LAUNCH_RATE, after=_spread(snapshot, timedelta(seconds=5)))
    candidate = snapshot.candidates[0]
    need = first_reservation(snapshot, candidate)
    money = snapshot.money
    if money.unspent_nano is not None and need > money.unspent_nano:
        held = _wait(snapshot, judged, waiting, StatusReason.BUDGET_EXHAUSTED, after=IMMEDIATELY)
        return replace(held, add_hold=Hold.BUDGET, need_nano=need)
    if money.available_nano is not None and need > money.available_nano:
        return _wait(snapshot, judged, waiting, StatusReason.BUDGET_RESERVED, after=_backoff(snapshot))
    return Decision(
        status=JobStatus.PROVISIONING,
        attempts=_list_changes(judged),
        new_attempt=NewAttempt(
            fence=max(snapshot.fence_floor, job.fence) + 1, candidate=candidate, grant_until=now + job.first_grant
        ),
        need_nano=need,
    )


def first_reservation(snapshot: Snapshot, candidate: Candidate) -> int:
    """Nano-dollars that a launch must hold: the first grant and the tail, at the ceiling, for every node.

    From the whole second before to the one after: that is how the ledger counts, and what it counts must be held.
    """
    covers = covered_until(snapshot.now + snapshot.job.first_grant, snapshot.terms)
    span = covers - floor_second(snapshot.now)
    return reserved_nano(candidate.ceiling_hourly_nano, span, snapshot.job.num_nodes)


def _wait(
    snapshot: Snapshot, judged: tuple[Judged, ...], status: JobStatus, reason: StatusReason | None, *, after: timedelta
) -> Decision:
    if any(one.is_live for one in judged):
        after = IMMEDIATELY if _has_moved(judged) else min(after, snapshot.terms.poll)
    return Decision(status=status, reason=reason, attempts=_list_changes(judged), requeue_after=after)


def _settle(snapshot: Snapshot, judged: tuple[Judged, ...], status: JobStatus, reason: StatusReason | None) -> Decision:
    """A status that nothing need be done for: it waits for a wish or its deadline, or goes on at once when it is new."""
    is_new = status is not snapshot.job.status
    after = IMMEDIATELY if is_new else _until_deadline(snapshot)
    return Decision(status=status, reason=reason, attempts=_list_changes(judged), requeue_after=after)


def _keep(
    snapshot: Snapshot,
    judged: tuple[Judged, ...],
    reason: StatusReason | None,
    *,
    status: JobStatus | None = None,
) -> Decision:
    """Go on with the attempts as judged, and look again at once when anything moved, else after the poll period."""
    status = status or snapshot.job.status
    has_moved = status is not snapshot.job.status or _has_moved(judged)
    is_unconfirmed = any(one.change.is_alarm or one.view.is_alarmed for one in judged)
    return Decision(
        status=status,
        reason=StatusReason.TERMINATION_UNCONFIRMED if is_unconfirmed else reason,
        attempts=_list_changes(judged),
        requeue_after=IMMEDIATELY if has_moved else snapshot.terms.poll,
    )


def _has_moved(judged: tuple[Judged, ...]) -> bool:
    return any(one.change.state is not one.view.state for one in judged)


def _is_ending(one: Judged) -> bool:
    return one.change.state in (AttemptState.DRAINING, AttemptState.TERMINATING, AttemptState.GONE)


def _leave(one: Judged) -> Judged:
    """Drain what has run (there may be steps to save); end the rest."""
    if one.change.state in (AttemptState.DRAINING, AttemptState.TERMINATING, AttemptState.GONE):
        return one
    return _drain(one) if one.view.has_run else _terminate(one)


def _drain(one: Judged) -> Judged:
    return replace(one, change=replace(one.change, state=AttemptState.DRAINING))


def _terminate(one: Judged) -> Judged:
    """Nothing is terminated that was never asked for: it is gone as it stands, once no launch can be under way."""
    if one.change.state in (AttemptState.TERMINATING, AttemptState.GONE):
        return one
    cause = one.change.cause or AttemptCause.STOPPED
    return replace(one, change=replace(one.change, state=AttemptState.TERMINATING, cause=cause))


def _list_changes(judged: tuple[Judged, ...]) -> tuple[AttemptChange, ...]:
    """Only what changes."""
    return tuple(
        one.change
        for one in judged
        if one.change.state is not one.view.state
        or one.change.cause not in (None, one.view.cause)
        or one.change.is_alarm
    )


def _list_actions(snapshot: Snapshot, decision: Decision) -> tuple[Action, ...]:
    """What the intended states ask of the provider. Both verbs are idempotent, so repeating one is safe."""
    states = {view.fence: view.state for view in snapshot.attempts}
    states |= {change.fence: change.state for change in decision.attempts}
    views = {view.fence: view for view in snapshot.attempts}
    actions: list[Action] = []
    for fence, state in sorted(states.items()):
        view = views[fence]
        is_due = view.next_try_at is None or snapshot.now >= view.next_try_at or state is not view.state
        if state is AttemptState.TERMINATING and is_due:
            actions.append(Terminate(fence=fence))
        if state is AttemptState.INTENDED and is_due and _is_unseen(view):
            actions.append(Launch(fence=fence))
    if decision.new_attempt is not None:
        actions.append(Launch(fence=decision.new_attempt.fence))
    return tuple(actions)


def _is_unseen(view: AttemptView) -> bool:
    """Not launched as far as anybody knows. With no answer from the provider at all, launching would be blind."""
    is_seen = view.observation is not None and view.observation.state is not ClusterState.ABSENT
    return view.launched_at is None and not view.nodes and view.observation is not None and not is_seen


def _hold_reason(snapshot: Snapshot) -> StatusReason | None:
    return next((reason for hold, reason in _HOLD_REASONS.items() if hold in snapshot.job.holds), snapshot.job.reason)


def _is_past_deadline(snapshot: Snapshot) -> bool:
    return (
        snapshot.job.deadline is not None
        and snapshot.now >= snapshot.job.deadline
        and snapshot.job.status not in TERMINAL_STATUSES
    )


def _until_deadline(snapshot: Snapshot) -> timedelta | None:
    """A deadline still ahead is news when it comes, even to a job at rest."""
    if snapshot.job.deadline is None or _is_past_deadline(snapshot):
        return None
    return snapshot.job.deadline - snapshot.now


def _backoff(snapshot: Snapshot) -> timedelta:
    """Doubles with each launch that came to nothing, up to a limit, spread by the job's jitter."""
    terms = snapshot.terms
    doubled = terms.backoff * 2 ** min(snapshot.job.launch_failure_count, 10)
    return _spread(snapshot, min(doubled, terms.backoff_limit))


def _spread(snapshot: Snapshot, base: timedelta) -> timedelta:
    return base * (0.75 + 0.5 * snapshot.job.jitter)


_DECIDERS: dict[JobStatus, Callable[[Snapshot, tuple[Judged, ...]], Decision]] = {
    JobStatus.QUEUED: _decide_queued,
    JobStatus.PROVISIONING: _decide_provisioning,
    JobStatus.STARTING: _decide_starting,
    JobStatus.RUNNING: _decide_running,
    JobStatus.RECOVERING: _decide_recovering,
    JobStatus.PAUSING: _decide_pausing,
    JobStatus.PAUSED: _decide_paused,
    JobStatus.STOPPING: _decide_stopping,
    JobStatus.SUCCEEDED: _decide_ended,
    JobStatus.FAILED: _decide_failed,
    JobStatus.CANCELLED: _decide_ended,
}
