"""Intend: write the decision down, in one transaction that the claim's token guards. Nothing has happened yet outside."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from service.budgets import service as budgets
from service.checkpoints.service import CheckpointConflict, Fenced, NewCheckpoint, list_candidates, register
from service.db.claims import holds_claim
from service.db.models import Attempt, Job, Node, OfferRow
from service.db.outbox import emit
from service.domain.decision import AttemptChange, Decision, NewAttempt
from service.domain.grants import covered_until
from service.domain.judge import FAULTS
from service.domain.money import floor_second, from_nano
from service.domain.snapshot import Snapshot
from service.domain.states import (
    TERMINAL_STATUSES,
    AttemptCause,
    AttemptState,
    EndReason,
    Hold,
    JobStatus,
    StatusReason,
    check_attempt_transition,
    check_job_transition,
)
from service.domain.terms import Terms
from service.ids import cluster_name, new_id
from service.ledger.service import close
from service.prices.service import to_offer
from worker.reconcile.act import Intended
from worker.reconcile.load import Loaded

_TRAINING_ERRORS = (EndReason.USER_ERROR, EndReason.NO_USABLE_CHECKPOINT)
_TIMES = {
    AttemptState.UP: "up_at",
    AttemptState.DRAINING: "draining_at",
    AttemptState.TERMINATING: "terminating_at",
    AttemptState.GONE: "gone_at",
}


def intend(
    session: Session, loaded: Loaded, decision: Decision, snapshot: Snapshot, found: tuple[NewCheckpoint, ...]
) -> Intended | bool | None:
    """Commit status, attempts, reservation and events together.

    False when the claim is lost: the caller discards everything. Otherwise the new attempt, or None.
    """
    if not holds_claim(session, loaded.claim):
        return False
    job = session.get_one(Job, loaded.job_id, populate_existing=True)
    now = snapshot.now
    _import_found(session, found, now=now)
    for change in decision.attempts:
        _change_attempt(session, job, loaded, change, snapshot)
    intended = _intend_launch(session, job, decision, snapshot) if decision.new_attempt else None
    is_refused = decision.new_attempt is not None and intended is None
    _write_job(session, job, decision, is_refused=is_refused, now=now)
    return intended


def _import_found(session: Session, found: tuple[NewCheckpoint, ...], *, now: datetime) -> None:
    for new in found:
        try:
            register(session, new, now=now)
        except (Fenced, CheckpointConflict):
            continue  # somebody else's tick came first; the register rules


# ---- attempts -------------------------------------------------------------------------------------------------------


def _change_attempt(session: Session, job: Job, loaded: Loaded, change: AttemptChange, snapshot: Snapshot) -> None:
    now = snapshot.now
    statement = select(Attempt).where(Attempt.id == loaded.attempt_ids[change.fence]).with_for_update()
    attempt = session.scalars(statement.execution_options(populate_existing=True)).one()
    check_attempt_transition(AttemptState(attempt.state), change.state)
    before, attempt.state = attempt.state, change.state.value
    attempt.cause = attempt.cause or (change.cause.value if change.cause else None)
    if change.cause is AttemptCause.COMPLETED:
        attempt.cause = change.cause.value
    if change.state != before:
        attempt.next_try_at = None
        if column := _TIMES.get(change.state):
            setattr(attempt, column, now)
    if attempt.launched_at is None and change.state in (AttemptState.LAUNCHING, AttemptState.UP):
        _adopt(attempt, snapshot, change.fence)
    if change.is_loss:
        _record_loss(session, job, attempt, change, snapshot)
    if change.is_alarm:
        attempt.is_unconfirmed_alarmed = True
        _tell(session, job, "attempt.termination_unconfirmed", attempt, now, since=attempt.terminating_at)
    if change.state is AttemptState.GONE:
        _close(session, job, attempt, change, now)


def _adopt(attempt: Attempt, snapshot: Snapshot, fence: int) -> None:
    """A launch whose answer was lost, seen all the same: it costs from when the provider made it."""
    observation = next(view.observation for view in snapshot.attempts if view.fence == fence)
    created_at = observation.created_at if observation else None
    launched_at = max(created_at or attempt.tried_at or snapshot.now, attempt.intended_at)
    attempt.launched_at = launched_at
    attempt.accrued_until = max(attempt.accrued_until, floor_second(launched_at))
    attempt.launch_failure = None


def _record_loss(session: Session, job: Job, attempt: Attempt, change: AttemptChange, snapshot: Snapshot) -> None:
    """Count it, tell it, and pass the offer over for a while."""
    assert change.cause is not None
    attempt.lost_at = _find_lost_at(change, snapshot)
    is_fault = change.cause in FAULTS
    if is_fault:
        job.fault_count += 1
        job.faults_since_progress += 1
        job.not_before = _fault_backoff(job.faults_since_progress, snapshot.terms, snapshot.now)
    else:
        job.preemption_count += 1
        _pass_over(session, attempt.offer_id, "preempted", snapshot)
    _tell(
        session,
        job,
        "attempt.lost" if is_fault else "attempt.preempted",
        attempt,
        snapshot.now,
        cause=change.cause.value,
        has_notice=attempt.notice_at is not None,
        at_step=attempt.last_step,
        checkpoint_step=job.checkpoint_step,
    )


def _find_lost_at(change: AttemptChange, snapshot: Snapshot) -> datetime:
    observation = next(view.observation for view in snapshot.attempts if view.fence == change.fence)
    ended_at = observation.ended_at if observation else None
    return min(ended_at, snapshot.now) if ended_at else snapshot.now


def _fault_backoff(faults: int, terms: Terms, now: datetime) -> datetime | None:
    """The first fault is met at once; each further one without progress doubles the wait."""
    if faults < 2:
        return None
    return now + min(terms.backoff * 2 ** min(faults - 2, 10), terms.backoff_limit)


def _pass_over(session: Session, offer_id: str, reason: str, snapshot: Snapshot) -> None:
    session.execute(
        update(OfferRow)
        .where(OfferRow.id == offer_id)
        .values(unavailable_until=snapshot.now + snapshot.terms.unavailable, unavailable_reason=reason)
        .execution_options(synchronize_session=False)
    )


def _close(session: Session, job: Job, attempt: Attempt, change: AttemptChange, now: datetime) -> None:
    gone_at = max(min(change.gone_at or now, now), attempt.launched_at or attempt.intended_at)
    attempt.state = AttemptState.TERMINATING.value  # the ledger closes live attempts only
    close(session, attempt, gone_at=gone_at, now=now)
    attempt.state, attempt.gone_at = AttemptState.GONE.value, gone_at
    _tell(session, job, "attempt.gone", attempt, now, cause=attempt.cause, cost_usd=str(from_nano(attempt.cost_nano)))


# ---- a new attempt --------------------------------------------------------------------------------------------------


def _intend_launch(session: Session, job: Job, decision: Decision, snapshot: Snapshot) -> Intended | None:
    """Reserve and write the attempt, or neither; None when the money went elsewhere meanwhile."""
    new = decision.new_attempt
    assert new is not None
    if not budgets.reserve(session, job.project_id, job.id, decision.need_nano):
        return None
    attempt = _make_attempt(job, new, snapshot, decision.need_nano)
    session.add(attempt)
    job.fence = new.fence
    session.flush()
    offer = new.candidate.offer
    _tell(
        session,
        job,
        "attempt.intended",
        attempt,
        snapshot.now,
        offer=offer.id,
        hourly_usd=str(from_nano(new.candidate.hourly_nano)),
        resume_step=job.checkpoint_step,
    )
    return Intended(
        attempt_id=attempt.id,
        fence=attempt.fence,
        offer=offer,
        ceiling_hourly_nano=attempt.ceiling_hourly_nano,
        resume_candidates=list_candidates(session, job.id),
    )


def _make_attempt(job: Job, new: NewAttempt, snapshot: Snapshot, held: int) -> Attempt:
    candidate = new.candidate
    return Attempt(
        id=new_id("att"),
        job_id=job.id,
        fence=new.fence,
        state=AttemptState.INTENDED.value,
        cluster_name=cluster_name(job.id, new.fence),
        offer_id=candidate.offer.id,
        num_nodes=job.num_nodes,
        ceiling_hourly_nano=candidate.ceiling_hourly_nano,
        hourly_nano=candidate.hourly_nano,
        on_demand_hourly_nano=candidate.offer.on_demand_hourly_nano,
        intended_at=snapshot.now,
        grant_until=new.grant_until,
        covered_until=covered_until(new.grant_until, snapshot.terms),
        accrued_until=floor_second(snapshot.now),
        reserved_nano=held,
    )


# ---- the job --------------------------------------------------------------------------------------------------------


def _write_job(session: Session, job: Job, decision: Decision, *, is_refused: bool, now: datetime) -> None:
    before = JobStatus(job.status)
    status = before if is_refused else decision.status
    check_job_transition(before, status)
    job.status = status.value
    job.status_reason = StatusReason.BUDGET_RESERVED.value if is_refused else decision.reason
    if decision.end_reason is not None and job.end_reason is None:
        job.end_reason = decision.end_reason.value
    if decision.add_hold is Hold.BUDGET and budgets.is_spent(session, job.project_id, job.id, decision.need_nano):
        job.has_budget_hold = True
        budgets.tell_stop(session, job.project_id, job.id, need_nano=decision.need_nano, now=now)
    if decision.is_deadline_missed:
        job.deadline_missed_at = now
        emit(session, project_id=job.project_id, job_id=job.id, kind="job.deadline_missed", at=now)
    if status is not before:
        _enter_status(session, job, before, status, now=now)


def _enter_status(session: Session, job: Job, before: JobStatus, status: JobStatus, *, now: datetime) -> None:
    if status is JobStatus.RUNNING:
        job.started_at = job.started_at or now
        job.launch_failure_count = 0
    if status in TERMINAL_STATUSES:
        job.ended_at = now
    if status is JobStatus.QUEUED and before is JobStatus.FAILED:
        _reset_for_retry(job)
    if status is JobStatus.STOPPING and job.end_reason in _TRAINING_ERRORS:
        job.user_error_count += 1
        _tell_training_error(session, job, now=now)
    emit(
        session,
        project_id=job.project_id,
        job_id=job.id,
        kind=f"job.{status}",
        at=now,
        before=before.value,
        reason=job.status_reason,
        end_reason=job.end_reason,
        step=job.step,
    )


def _reset_for_retry(job: Job) -> None:
    job.retry_requested_at = job.end_reason = job.stop_reason = job.error = job.ended_at = None
    job.faults_since_progress = 0
    job.not_before = job.deadline_missed_at = None


def _tell_training_error(session: Session, job: Job, *, now: datetime) -> None:
    """The `training_error` alert: which rank, its last lines, what to do about it."""
    exits = session.scalars(
        select(Node.exit)
        .join(Attempt, Attempt.id == Node.attempt_id)
        .where(Attempt.job_id == job.id, Attempt.fence == job.fence)
        .order_by(Node.node_rank)
    )
    told = next((report for report in exits if report and report["kind"] == job.end_reason), None)
    error = _describe_error(told or {"kind": job.end_reason})
    job.error = error
    emit(session, project_id=job.project_id, job_id=job.id, kind="training_error", at=now, **error)


def _describe_error(report: dict[str, Any]) -> dict[str, Any]:
    """An exit report as users see it (`JobError`)."""
    rank, exit_code, log_tail = report.get("rank"), report.get("code"), report.get("log_tail") or []
    who = "The job" if rank is None else f"Rank {rank}"
    how = "failed" if exit_code is None else f"ended with exit code {exit_code}"
    return {
        "code": report["kind"],
        "message": f"{who} {how}" + (f": {log_tail[-1]}" if log_tail else "."),
        "remedy": report.get("remedy"),
        "rank": rank,
        "exit_code": exit_code,
        "log_tail": log_tail,
    }


def _tell(session: Session, job: Job, kind: str, attempt: Attempt, now: datetime, **data: object) -> None:
    plain = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in data.items()}
    emit(
        session,
        project_id=job.project_id,
        job_id=job.id,
        kind=kind,
        at=now,
        attempt_id=attempt.id,
        fence=attempt.fence,
        **plain,
    )


def to_intended(session: Session, loaded: Loaded, fence: int) -> Intended:
    """A committed attempt as a launch needs it: for the relaunch of an intent whose worker died."""
    row = session.get_one(Attempt, loaded.attempt_ids[fence])
    offer = to_offer(session.get_one(OfferRow, row.offer_id))
    return Intended(
        attempt_id=row.id,
        fence=row.fence,
        offer=offer,
        ceiling_hourly_nano=row.ceiling_hourly_nano,
        resume_candidates=list_candidates(session, row.job_id),
    )
