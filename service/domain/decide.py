"""The reconciler's judgement: `decide(snapshot) -> Decision`, a pure function.

First each live attempt is judged by its own evidence. Then the job's status follows from its wishes (a stop, holds, a
retry) and from what the attempts have come to, by one small function a status; the table at the end lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from service.domain.decision import Action, AttemptChange, Decision, Launch, Terminate
from service.domain.judge import FAULTS, judge_attempt
from service.domain.judged import (
    Judged,
    drain,
    is_ending,
    is_past_deadline,
    keep,
    leave,
    list_changes,
    settle,
    terminate,
)
from service.domain.launching import try_launch
from service.domain.observations import ClusterState
from service.domain.snapshot import AttemptView, Snapshot
from service.domain.states import (
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


def decide(snapshot: Snapshot) -> Decision:
    """What follows from the snapshot. The result obeys the transition table; deciding again on it changes nothing more."""
    judged = tuple(
        Judged(view=view, change=_judge(view, snapshot)) for view in sorted(snapshot.attempts, key=lambda a: a.fence)
    )
    decision = _DECIDERS[snapshot.job.status](snapshot, judged)
    check_job_transition(snapshot.job.status, decision.status)
    is_missed = is_past_deadline(snapshot) and not snapshot.job.is_deadline_missed
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
    return try_launch(snapshot, judged, waiting=JobStatus.QUEUED)


def _decide_provisioning(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    if decision := _decide_wishes(snapshot, judged):
        return decision
    current = judged[-1] if judged else None
    if current is None or current.change.state is AttemptState.GONE:
        return _back_to_queue(snapshot, judged)
    if current.change.cause is AttemptCause.NO_CAPACITY:
        return keep(snapshot, judged, StatusReason.NO_CAPACITY)
    if is_ending(current):
        return _recover(snapshot, judged)
    if current.change.state is AttemptState.UP:
        return keep(snapshot, judged, None, status=JobStatus.STARTING)
    return keep(snapshot, judged, None)


def _decide_starting(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    if decision := _decide_wishes(snapshot, judged):
        return decision
    if not judged or is_ending(judged[-1]):
        return _recover(snapshot, judged)
    has_run = judged[-1].view.has_run
    return keep(snapshot, judged, None, status=JobStatus.RUNNING if has_run else JobStatus.STARTING)


def _decide_running(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    if decision := _decide_wishes(snapshot, judged):
        return decision
    if not judged or is_ending(judged[-1]):
        return _recover(snapshot, judged)
    current = judged[-1]
    if current.view.is_above_ceiling:
        return keep(
            snapshot, (*judged[:-1], drain(current)), StatusReason.PRICE_ABOVE_CEILING, status=JobStatus.RECOVERING
        )
    return keep(snapshot, judged, None)


def _decide_recovering(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    if decision := _decide_wishes(snapshot, judged):
        return decision
    return try_launch(snapshot, judged, waiting=JobStatus.RECOVERING)


def _decide_pausing(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    if end := _find_end(snapshot, judged):
        return _stop(snapshot, judged, end)
    return _pause(snapshot, judged)


def _decide_paused(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    if end := _find_end(snapshot, judged):
        return _stop(snapshot, judged, end)
    if snapshot.job.holds:
        return settle(snapshot, judged, JobStatus.PAUSED, _hold_reason(snapshot))
    return settle(snapshot, judged, JobStatus.QUEUED, None)


def _decide_stopping(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    end = snapshot.job.end_reason
    assert end is not None, "a stopping job has its end reason"
    keeps_drain = end in (EndReason.CANCELLED, EndReason.DEADLINE) and not snapshot.job.is_stop_now
    leaving = tuple(leave(one) if keeps_drain else terminate(one) for one in judged)
    if any(one.is_live for one in leaving):
        return replace(keep(snapshot, leaving, snapshot.job.reason), end_reason=end)
    return replace(settle(snapshot, leaving, end.to_status(), None), end_reason=end, requeue_after=None)


def _decide_failed(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    if snapshot.job.is_retry:
        return settle(snapshot, judged, JobStatus.QUEUED, StatusReason.RETRIED)
    return _decide_ended(snapshot, judged)


def _decide_ended(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    return Decision(
        status=snapshot.job.status,
        reason=snapshot.job.reason,
        end_reason=snapshot.job.end_reason,
        attempts=list_changes(tuple(terminate(one) for one in judged)),
        requeue_after=snapshot.terms.poll if judged else None,
    )


# ---- what the statuses share ----------------------------------------------------------------------------------------


def _decide_wishes(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision | None:
    """A stop or a hold, which any status with nodes obeys."""
    if end := _find_end(snapshot, judged):
        return _stop(snapshot, judged, end)
    if not snapshot.job.holds:
        return None
    leaving = tuple(leave(one) for one in judged)
    return keep(snapshot, leaving, _hold_reason(snapshot), status=JobStatus.PAUSING)


def _pause(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    """Paused once every attempt is gone; even a fenced-off one that nobody confirms costs money until then."""
    leaving = tuple(leave(one) for one in judged)
    if any(one.is_live for one in leaving):
        return keep(snapshot, leaving, _hold_reason(snapshot))
    return settle(snapshot, leaving, JobStatus.PAUSED, _hold_reason(snapshot))


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
    return EndReason.DEADLINE if snapshot.job.stops_on_deadline and is_past_deadline(snapshot) else None


def _stop(snapshot: Snapshot, judged: tuple[Judged, ...], end: EndReason) -> Decision:
    keeps_drain = end in (EndReason.CANCELLED, EndReason.DEADLINE) and not snapshot.job.is_stop_now
    leaving = tuple(leave(one) if keeps_drain else terminate(one) for one in judged)
    return Decision(status=JobStatus.STOPPING, reason=None, end_reason=end, attempts=list_changes(leaving))


def _recover(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    cause = judged[-1].change.cause if judged else None
    reason = _LOSS_REASONS.get(cause, StatusReason.NODE_LOST) if cause else StatusReason.NODE_LOST
    return keep(snapshot, judged, reason, status=JobStatus.RECOVERING)


def _back_to_queue(snapshot: Snapshot, judged: tuple[Judged, ...]) -> Decision:
    """Nothing is up. Another offer may have room, so look again at once; the queue itself knows how to wait."""
    reason = StatusReason.NO_CAPACITY if judged else snapshot.job.reason
    return keep(snapshot, judged, reason, status=JobStatus.QUEUED)


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
