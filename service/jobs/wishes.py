"""What users want of a job, written for the reconciler to see. Repeats change nothing; the first stop wins."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from service.api.dependencies import wake_after_commit
from service.api.problems import Problem, from_validation, invalid
from service.db.models import Job
from service.db.outbox import emit
from service.domain.states import TERMINAL_STATUSES, EndReason, JobStatus
from service.jobs.queries import find_live_attempt
from service.jobs.submit import check_deadline, seal_secrets, to_stored
from service.seal import Sealer
from training.protocol.job_spec import JobSpec

FIXED_FIELDS = {
    "name": "A retry keeps the job's name; submit a new job for another.",
    "budget": "Change the cap with PATCH /v1/budgets/{id} or a top-up.",
}


def pause_job(session: Session, job: Job, *, now: datetime) -> None:
    """Errors: Problem 409 for a job that has ended or is ending."""
    _refuse_ended(job, "pause")
    if job.has_user_hold:
        return
    job.has_user_hold = True
    _tell(session, job, "job.pause_requested", now)


def resume_job(session: Session, job: Job, *, now: datetime) -> None:
    """Errors: Problem 409 for a job that has ended or is ending, or that only its budget holds."""
    _refuse_ended(job, "resume")
    if job.has_user_hold:
        job.has_user_hold = False
        _tell(session, job, "job.resume_requested", now)
    elif job.has_budget_hold:
        raise Problem(
            409,
            "budget_exhausted",
            "The job waits for money, not for a resume.",
            remedy="Top up its budget: POST /v1/budgets/{id}/top-up.",
        )


def cancel_job(session: Session, job: Job, *, is_now: bool, now: datetime) -> None:
    """An ended job stays as it ended. `is_now` may be added to a cancel that drains."""
    if _is_ended(job) or job.stop_reason not in (None, EndReason.CANCELLED):
        return
    if job.stop_reason is not None and (job.is_stop_now or not is_now):
        return
    job.stop_reason = EndReason.CANCELLED.value
    job.is_stop_now = is_now
    _tell(session, job, "job.cancel_requested", now, is_now=is_now)


def retry_job(session: Session, job: Job, patch: dict[str, Any], sealer: Sealer, *, now: datetime) -> None:
    """From its verified checkpoint, with the spec changed. Errors: Problem 409 unless failed, 422 for a bad change."""
    if job.retry_requested_at is not None and not patch:
        return
    if job.status != JobStatus.FAILED or job.retry_requested_at is not None:
        remedy = "Only a failed job can be retried, once at a time; submit a new job instead."
        raise Problem(409, "not_failed", f"The job is {job.status}.", remedy=remedy)
    if patch:
        _change_spec(job, patch, sealer, now)
    job.retry_requested_at = now
    _tell(session, job, "job.retry_requested", now, changed=sorted(patch))


def ask_for_checkpoint(session: Session, job: Job, *, now: datetime) -> None:
    """Errors: Problem 409 without a live attempt."""
    attempt = find_live_attempt(session, job.id)
    if attempt is None:
        raise not_up(job)
    if not attempt.is_checkpoint_wanted:
        attempt.is_checkpoint_wanted = True
        _tell(session, job, "job.checkpoint_requested", now, fence=attempt.fence)


def not_up(job: Job) -> Problem:
    return Problem(
        409, "not_up", f"No attempt of the job is up; the job is {job.status}.", remedy="Try again once it runs."
    )


def _change_spec(job: Job, patch: dict[str, Any], sealer: Sealer, now: datetime) -> None:
    for field, remedy in FIXED_FIELDS.items():
        if field in patch:
            raise invalid(f"spec.{field}", "cannot change in a retry", remedy)
    before = {**job.spec, "secrets": sealer.unseal(job.sealed_secrets)}
    try:
        spec = JobSpec.model_validate(merge_patch(before, patch))
    except ValidationError as error:
        raise from_validation([{**one, "loc": ("spec", *one["loc"])} for one in error.errors()]) from error
    check_deadline(spec, now)
    job.spec = to_stored(spec)
    job.sealed_secrets = seal_secrets(spec, sealer)
    job.num_nodes = spec.resources.num_nodes
    job.target_steps = spec.train.steps if spec.train else None


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def _is_ended(job: Job) -> bool:
    return job.status in TERMINAL_STATUSES


def _refuse_ended(job: Job, verb: str) -> None:
    if _is_ended(job):
        remedy = "Retry it, or submit a new job." if job.status == JobStatus.FAILED else "Submit a new job."
        raise Problem(409, "job_ended", f"Cannot {verb}: the job has {job.status}.", remedy=remedy)
    if job.stop_reason is not None or job.status == JobStatus.STOPPING:
        raise Problem(409, "job_stopping", f"Cannot {verb}: the job is stopping.", remedy="A stop is irrevocable.")


def _tell(session: Session, job: Job, kind: str, now: datetime, **data: Any) -> None:
    emit(session, project_id=job.project_id, job_id=job.id, kind=kind, at=now, **data)
    session.flush()
    wake_after_commit(session, job.id, now=now)
    session.refresh(job)
