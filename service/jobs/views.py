"""Jobs as shown: rows and the figures around them, read in a fixed number of queries however many jobs there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from service.api.money import to_usd, to_usd_or_none
from service.db.models import Attempt, Budget, Checkpoint, Job, Metric
from service.domain.states import AttemptState, EndReason, Hold, JobStatus
from service.jobs.schemas import JobError, JobSummary, JobView, LiveAttempt
from service.seal import Sealer

LOSS, TOKENS_PER_SECOND = "loss/train", "performance/tokens_per_second"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Totals:
    attempt_count: int = 0
    cost_nano: int = 0
    on_demand_cost_nano: int = 0
    reserved_nano: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Around:
    """What is shown beside the jobs' rows, by job id."""

    totals: dict[str, _Totals]
    live: dict[str, Attempt]
    metrics: dict[str, dict[str, Any]]
    checkpoint_counts: dict[str, int]
    budgets: dict[str, Budget]


def show_jobs(session: Session, jobs: Sequence[Job]) -> list[JobSummary]:
    around = _load_around(session, [job.id for job in jobs])
    return [JobSummary.model_validate(_summarise(job, around)) for job in jobs]


def show_job(session: Session, job: Job, sealer: Sealer) -> JobView:
    summary = _summarise(job, _load_around(session, [job.id]))
    return JobView.model_validate(
        {
            **summary,
            "spec": job.spec,
            "secret_names": sorted(sealer.unseal(job.sealed_secrets)),
            "fence": job.fence,
            "error": _to_error(job.error),
        }
    )


def _summarise(job: Job, around: _Around) -> dict[str, Any]:
    totals = around.totals.get(job.id, _Totals())
    live, budget = around.live.get(job.id), around.budgets.get(job.id)
    metrics = around.metrics.get(job.id, {})
    holds = [hold for hold, is_on in ((Hold.USER, job.has_user_hold), (Hold.BUDGET, job.has_budget_hold)) if is_on]
    return {
        "id": job.id,
        "project_id": job.project_id,
        "name": job.name,
        "labels": job.spec.get("labels") or {},
        "status": JobStatus(job.status),
        "status_reason": job.status_reason,
        "end_reason": EndReason(job.end_reason) if job.end_reason else None,
        "holds": holds,
        "stop_requested": EndReason(job.stop_reason) if job.stop_reason else None,
        "step": job.step,
        "target_steps": job.target_steps,
        "checkpoint_step": job.checkpoint_step,
        "loss": metrics.get(LOSS),
        "tokens_per_second": metrics.get(TOKENS_PER_SECOND),
        "attempt": _to_live(live) if live else None,
        "num_nodes": job.num_nodes,
        "attempt_count": totals.attempt_count,
        "preemption_count": job.preemption_count,
        "fault_count": job.fault_count,
        "checkpoint_count": around.checkpoint_counts.get(job.id, 0),
        "spent_usd": to_usd(totals.cost_nano),
        "on_demand_cost_usd": to_usd(totals.on_demand_cost_nano),
        "reserved_usd": to_usd(totals.reserved_nano),
        "budget_id": budget.id if budget else None,
        "budget_usd": to_usd_or_none(budget.cap_nano if budget else None),
        "deadline": job.spec.get("deadline"),
        "is_deadline_missed": job.deadline_missed_at is not None,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
    }


def _load_around(session: Session, ids: Sequence[str]) -> _Around:
    attempts = (
        select(
            Attempt.job_id,
            func.count(),
            func.sum(Attempt.cost_nano),
            func.sum(Attempt.on_demand_cost_nano),
            func.sum(Attempt.reserved_nano),
        )
        .where(Attempt.job_id.in_(ids))
        .group_by(Attempt.job_id)
    )
    live = select(Attempt).where(Attempt.job_id.in_(ids), Attempt.state != AttemptState.GONE.value)
    newest = select(Metric.job_id, func.max(Metric.step).label("step")).where(Metric.job_id.in_(ids))
    last = newest.group_by(Metric.job_id).subquery()
    metrics = select(Metric).join(last, and_(Metric.job_id == last.c.job_id, Metric.step == last.c.step))
    kept = Checkpoint.corrupt_at.is_(None) & Checkpoint.deleted_at.is_(None)
    checkpoints = select(Checkpoint.job_id, func.count()).where(Checkpoint.job_id.in_(ids), kept)
    return _Around(
        totals={
            job_id: _Totals(
                attempt_count=count, cost_nano=int(cost), on_demand_cost_nano=int(on_demand), reserved_nano=int(held)
            )
            for job_id, count, cost, on_demand, held in session.execute(attempts)
        },
        live={attempt.job_id: attempt for attempt in session.scalars(live.order_by(Attempt.fence))},
        metrics={metric.job_id: metric.values for metric in session.scalars(metrics)},
        checkpoint_counts=dict(session.execute(checkpoints.group_by(Checkpoint.job_id)).all()),
        budgets={b.job_id: b for b in session.scalars(select(Budget).where(Budget.job_id.in_(ids))) if b.job_id},
    )


def _to_live(attempt: Attempt) -> LiveAttempt:
    return LiveAttempt(
        id=attempt.id,
        fence=attempt.fence,
        state=AttemptState(attempt.state),
        offer_id=attempt.offer_id,
        hourly_usd=to_usd(attempt.hourly_nano),
        num_nodes=attempt.num_nodes,
    )


def _to_error(error: dict[str, Any] | None) -> JobError | None:
    """The reconciler's and the agents' word for what went wrong; what is not known of it is left out."""
    if not error:
        return None
    known = {name: error[name] for name in JobError.model_fields if error.get(name) is not None}
    return JobError.model_validate({"message": "The job failed.", **known})
