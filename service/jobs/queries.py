"""Finding jobs of a project."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from service.api.problems import Problem, not_found
from service.db.models import Attempt, Job
from service.domain.states import AttemptState, JobStatus


def find_job(session: Session, job_id: str, project_id: str, *, is_locked: bool = False) -> Job:
    """Errors: Problem 404, for another project's job too."""
    query = select(Job).where(Job.id == job_id, Job.project_id == project_id)
    job = session.scalar(query.with_for_update() if is_locked else query)
    if job is None:
        raise not_found("job")
    return job


def list_jobs(
    session: Session,
    project_id: str,
    *,
    statuses: Sequence[JobStatus],
    name: str | None,
    label: str | None,
    after: tuple[datetime, str] | None,
    limit: int,
) -> Sequence[Job]:
    """Newest first. `label` is `name` or `name=value`. Errors: Problem 422."""
    query = select(Job).where(Job.project_id == project_id)
    if statuses:
        query = query.where(Job.status.in_([status.value for status in statuses]))
    if name is not None:
        query = query.where(Job.name == name)
    if label is not None:
        key, has_value, value = label.partition("=")
        if not key:
            raise Problem(422, "invalid", "label: give name or name=value")
        shown = Job.spec["labels"][key].as_string()
        query = query.where(shown == value if has_value else shown.is_not(None))
    if after is not None:
        query = query.where(tuple_(Job.created_at, Job.id) < after)
    return session.scalars(query.order_by(Job.created_at.desc(), Job.id.desc()).limit(limit)).all()


def find_live_attempt(session: Session, job_id: str) -> Attempt | None:
    """The newest attempt that is up."""
    query = select(Attempt).where(Attempt.job_id == job_id, Attempt.state == AttemptState.UP.value)
    return session.scalar(query.order_by(Attempt.fence.desc()).limit(1))
