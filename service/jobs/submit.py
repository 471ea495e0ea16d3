"""Submitting a job: its row, its own budget and its first event in one transaction."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.api.dependencies import wake_after_commit
from service.api.problems import FieldError, Problem, invalid
from service.context import Context
from service.db.models import Budget, Job, Project
from service.db.outbox import emit
from service.domain.money import to_nano
from service.domain.states import JobStatus
from service.ids import new_id
from service.seal import Sealer
from training.protocol.job_spec import JobSpec


def submit_job(session: Session, context: Context, spec: JobSpec, *, project_id: str, now: datetime) -> Job:
    """Errors: Problem 422 when the deadline is past or no budget covers the job."""
    check_deadline(spec, now)
    check_is_covered(session, spec, project_id)
    job = _make_job(spec, context.sealer, project_id, now)
    session.add(job)
    session.flush()
    if spec.budget is not None:
        session.add(
            Budget(
                id=new_id("bud"),
                project_id=project_id,
                job_id=job.id,
                cap_nano=to_nano(spec.budget.cap_usd),
                created_at=now,
            )
        )
    emit(session, project_id=project_id, job_id=job.id, kind="job.queued", at=now, name=job.name, status=job.status)
    wake_after_commit(session, job.id, now=now)
    session.flush()
    session.refresh(job)
    return job


def to_stored(spec: JobSpec) -> dict[str, Any]:
    """The spec as it is kept and shown: without the secrets."""
    return spec.model_dump(mode="json", exclude={"secrets"})


def seal_secrets(spec: JobSpec, sealer: Sealer) -> bytes | None:
    secrets = {name: value.get_secret_value() for name, value in spec.secrets.items()}
    return sealer.seal(secrets) if secrets else None


def check_deadline(spec: JobSpec, now: datetime) -> None:
    if spec.is_past_deadline(now):
        raise invalid("deadline", "is in the past", "Give a time to come, or leave it out.")


def check_is_covered(session: Session, spec: JobSpec, project_id: str) -> None:
    """Spending without a cap needs somebody's word for it. Errors: Problem 422."""
    if spec.budget is not None:
        return
    has_budget = session.scalar(select(Budget.id).where(Budget.project_id == project_id, Budget.job_id.is_(None)))
    allows = session.scalar(select(Project.allows_unbudgeted_jobs).where(Project.id == project_id))
    if has_budget or allows:
        return
    remedy = "Add 'budget: {cap_usd: …}' to the spec, give the project a budget, or let it run unbudgeted jobs."
    error = FieldError(field="budget", message="no budget covers this job", remedy=remedy)
    raise Problem(422, "budget_required", "No budget covers this job.", remedy=remedy, errors=[error])


def _make_job(spec: JobSpec, sealer: Sealer, project_id: str, now: datetime) -> Job:
    return Job(
        id=new_id("job"),
        project_id=project_id,
        name=spec.name,
        spec=to_stored(spec),
        sealed_secrets=seal_secrets(spec, sealer),
        status=JobStatus.QUEUED.value,
        num_nodes=spec.resources.num_nodes,
        target_steps=spec.train.steps if spec.train else None,
        due_at=now,
        created_at=now,
    )
