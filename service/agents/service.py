"""A heartbeat's way through the service: who is it, is it still in charge, what is new, may it run on."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.agents.grants import renew_grant, smallest_need
from service.agents.intake import store_logs, store_metrics, truncate_metrics
from service.budgets import service as budgets
from service.checkpoints.service import Fenced, mark_corrupt
from service.db.models import Attempt, Job, Node
from service.db.outbox import emit
from service.domain.states import AttemptState
from service.domain.terms import Terms
from training.protocol.messages import Command, Heartbeat, Phase, Reply

_COMMANDS = {AttemptState.DRAINING: (Command.DRAIN,), AttemptState.TERMINATING: (Command.STOP,)}


def receive_heartbeat(
    session: Session, attempt_id: str, heartbeat: Heartbeat, *, terms: Terms, now: datetime
) -> tuple[Reply, str | None]:
    """The reply, and the id of the job when the reconciler should hear of it now. Errors: Fenced.

    Locks the job, then the attempt, then budgets: the one order in which the service takes them.
    """
    job, attempt = lock_current(session, attempt_id, fence=heartbeat.fence)
    node = session.get(Node, (attempt.id, heartbeat.node_rank))
    if heartbeat.node_rank >= attempt.num_nodes:
        raise Fenced(f"node {heartbeat.node_rank} is not part of {attempt.cluster_name}")
    is_repeat = node is not None and heartbeat.seq <= node.last_seq
    is_news = False
    if not is_repeat:
        is_news = _record(session, job, attempt, node, heartbeat, now=now)
    is_news |= not _may_run_on(session, job, attempt, terms=terms, now=now)
    reply = Reply(
        answers_seq=heartbeat.seq,
        commands=_list_commands(attempt, job),
        grant_seconds=max(0.0, (attempt.grant_until - now).total_seconds()),
    )
    return reply, job.id if is_news else None


def lock_current(session: Session, attempt_id: str, *, fence: int) -> tuple[Job, Attempt]:
    """The attempt and its job, locked, if it still is the job's current one. Errors: Fenced."""
    job_id = session.scalar(select(Attempt.job_id).where(Attempt.id == attempt_id))
    if job_id is None:
        raise Fenced("no such attempt")
    fresh = {"populate_existing": True}
    job = session.scalars(select(Job).where(Job.id == job_id).with_for_update().execution_options(**fresh)).one()
    statement = select(Attempt).where(Attempt.id == attempt_id).with_for_update()
    attempt = session.scalars(statement.execution_options(**fresh)).one()
    if fence != attempt.fence or attempt.fence < job.fence or attempt.state == AttemptState.GONE:
        raise Fenced(f"fence {attempt.fence} of {job.id} is over; the job is at {job.fence}")
    return job, attempt


def _record(
    session: Session, job: Job, attempt: Attempt, node: Node | None, heartbeat: Heartbeat, *, now: datetime
) -> bool:
    """Write down what the node says; True when the reconciler should hear of it now."""
    is_news = _is_news(node, heartbeat)
    _record_node(session, attempt, node, heartbeat, now=now)
    if heartbeat.notice is not None and heartbeat.notice.kind == "preemption" and attempt.notice_at is None:
        attempt.notice_at = now
        emit(
            session,
            project_id=job.project_id,
            job_id=job.id,
            kind="attempt.notice_received",
            at=now,
            fence=attempt.fence,
            node_rank=heartbeat.node_rank,
            step=heartbeat.step,
            terminate_at=heartbeat.notice.terminate_at.isoformat() if heartbeat.notice.terminate_at else None,
        )
    for corrupt in heartbeat.corrupt_checkpoints:
        mark_corrupt(session, job, step=corrupt.step, fence=corrupt.fence, reason=corrupt.reason, now=now)
    if heartbeat.node_rank == 0:
        _record_progress(session, job, attempt, heartbeat, now=now)
        store_metrics(session, job, attempt, heartbeat)
    store_logs(session, job, attempt, heartbeat)
    return is_news


def _is_news(node: Node | None, heartbeat: Heartbeat) -> bool:
    if node is None:
        return True
    has_new_notice = heartbeat.notice is not None and node.notice is None
    has_new_exit = heartbeat.exit is not None and node.exit is None
    return has_new_notice or has_new_exit or node.phase != heartbeat.phase


def _record_node(session: Session, attempt: Attempt, node: Node | None, heartbeat: Heartbeat, *, now: datetime) -> None:
    """A notice and an exit, once told, stay."""
    values: dict[str, Any] = {
        "last_seq": heartbeat.seq,
        "last_heartbeat_at": now,
        "phase": heartbeat.phase.value,
        "step": heartbeat.step,
    }
    for name in ("notice", "exit"):
        if (told := getattr(heartbeat, name)) is not None:
            values[name] = told.model_dump(mode="json")
    if node is None:
        session.add(Node(attempt_id=attempt.id, node_rank=heartbeat.node_rank, **values))
        return
    for name, value in values.items():
        setattr(node, name, value)


def _record_progress(session: Session, job: Job, attempt: Attempt, heartbeat: Heartbeat, *, now: datetime) -> None:
    if heartbeat.resumed_from_step is not None and attempt.resumed_from_step is None:
        attempt.resumed_from_step = heartbeat.resumed_from_step
        truncate_metrics(session, job, attempt, heartbeat.resumed_from_step)
        job.step = heartbeat.resumed_from_step
    if heartbeat.step is not None:
        attempt.last_step = job.step = heartbeat.step
    if attempt.first_step_at is None and (heartbeat.first_step_at or heartbeat.phase is Phase.RUNNING):
        attempt.first_step_at = heartbeat.first_step_at or now
        emit(
            session,
            project_id=job.project_id,
            job_id=job.id,
            kind="attempt.first_step",
            at=now,
            fence=attempt.fence,
            step=heartbeat.step,
            resumed_from_step=attempt.resumed_from_step,
        )


def _may_run_on(session: Session, job: Job, attempt: Attempt, *, terms: Terms, now: datetime) -> bool:
    """Renew the grant where it is due. A refusal for good is the budget's stop: a hold, the 100 % alert, a drain to come.

    Money that other attempts only hold may come free: then the node goes on within the grant in hand, asks again with each
    heartbeat, and at the grant's end drains by itself, to wait for its turn.
    """
    is_leaving = attempt.state in _COMMANDS or job.has_user_hold or job.has_budget_hold or job.stop_reason is not None
    if is_leaving or renew_grant(session, job, attempt, terms=terms, now=now):
        return True
    need_nano = smallest_need(attempt, terms=terms, now=now)
    if not budgets.is_spent(session, job.project_id, job.id, attempt.reserved_nano + need_nano):
        return True
    job.has_budget_hold = True
    budgets.tell_stop(session, job.project_id, job.id, need_nano=need_nano, now=now)
    return False


def _list_commands(attempt: Attempt, job: Job) -> tuple[Command, ...]:
    if attempt.state == AttemptState.UP and job.has_budget_hold and attempt.first_step_at is not None:
        return (Command.DRAIN,)  # the refused renewal itself; the reconciler will say the same in a moment
    commands = _COMMANDS.get(AttemptState(attempt.state), ())
    if not commands and attempt.is_checkpoint_wanted:
        attempt.is_checkpoint_wanted = False
        return (Command.CHECKPOINT,)
    return commands
