"""Wishes: pause, resume, cancel, retry, checkpoint, drill."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Body, Response
from fastapi.responses import JSONResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from service.api.auth import Operator, Viewer
from service.api.dependencies import Ctx, Db, Now, ReadDb, wake_after_commit
from service.api.etag import etag_of
from service.api.idempotency import OnceDep
from service.api.problems import documented, invalid, not_found
from service.api.routing import make_router
from service.context import Context
from service.db.models import Drill, Job
from service.db.outbox import emit
from service.ids import new_id
from service.jobs import wishes
from service.jobs.history import load_attempts, report_drill
from service.jobs.queries import find_job, find_live_attempt
from service.jobs.schemas import CancelRequest, DrillRequest, DrillView, JobView, RetryRequest
from service.jobs.views import show_job

router = make_router("/v1/jobs/{job_id}", "jobs")


@router.post("/pause", responses=documented(409))
def pause_job(job_id: str, session: Db, who: Operator, context: Ctx, now: Now, response: Response) -> JobView:
    """Drain to a checkpoint and stop every node. A repeat changes nothing."""
    job = find_job(session, job_id, who.project_id, is_locked=True)
    wishes.pause_job(session, job, now=now)
    return _show(session, job, context, response)


@router.post("/resume", responses=documented(409))
def resume_job(job_id: str, session: Db, who: Operator, context: Ctx, now: Now, response: Response) -> JobView:
    """Let go of the user's hold. A repeat changes nothing."""
    job = find_job(session, job_id, who.project_id, is_locked=True)
    wishes.resume_job(session, job, now=now)
    return _show(session, job, context, response)


@router.post("/cancel")
def cancel_job(
    job_id: str,
    session: Db,
    who: Operator,
    context: Ctx,
    now: Now,
    response: Response,
    body: Annotated[CancelRequest, Body()] = CancelRequest(),  # noqa: B008 - frozen
) -> JobView:
    """End the job, after a drain unless `now`. A job that has ended is returned as it is: the first end wins."""
    job = find_job(session, job_id, who.project_id, is_locked=True)
    wishes.cancel_job(session, job, is_now=body.now, now=now)
    return _show(session, job, context, response)


@router.post("/retry", responses=documented(409))
def retry_job(
    job_id: str,
    session: Db,
    who: Operator,
    context: Ctx,
    now: Now,
    response: Response,
    body: Annotated[RetryRequest, Body()] = RetryRequest(),  # noqa: B008 - frozen
) -> JobView:
    """Run a failed job again from its verified checkpoint, with changed settings."""
    job = find_job(session, job_id, who.project_id, is_locked=True)
    wishes.retry_job(session, job, body.spec, context.sealer, now=now)
    return _show(session, job, context, response)


@router.post("/checkpoint", status_code=202, responses=documented(409))
def checkpoint_job(job_id: str, session: Db, who: Operator, context: Ctx, now: Now, response: Response) -> JobView:
    """Ask the live attempt to save now and go on."""
    job = find_job(session, job_id, who.project_id, is_locked=True)
    wishes.ask_for_checkpoint(session, job, now=now)
    return _show(session, job, context, response)


@router.post("/drills", status_code=202, response_model=DrillView, responses=documented(409))
def start_drill(job_id: str, body: DrillRequest, session: Db, who: Operator, once: OnceDep, now: Now) -> JSONResponse:
    """Take a node away on purpose."""

    def create() -> DrillView:
        job = find_job(session, job_id, who.project_id, is_locked=True)
        return report_drill(_insert_drill(session, job, body, now), load_attempts(session, job.id))

    return once.answer(session, who, create, status_code=202)


@router.get("/drills/{drill_id}")
def show_drill(job_id: str, drill_id: str, session: ReadDb, who: Viewer) -> DrillView:
    """What the drill took so far."""
    job = find_job(session, job_id, who.project_id)
    drill = session.scalar(select(Drill).where(Drill.id == drill_id, Drill.job_id == job.id))
    if drill is None:
        raise not_found("drill")
    return report_drill(drill, load_attempts(session, job.id))


def _insert_drill(session: Session, job: Job, body: DrillRequest, now: datetime) -> Drill:
    attempt = find_live_attempt(session, job.id)
    if attempt is None:
        raise wishes.not_up(job)
    if body.node_rank >= attempt.num_nodes:
        raise invalid("node_rank", f"the attempt has {attempt.num_nodes} nodes", "Give a rank that exists.")
    drill = Drill(
        id=new_id("drl"),
        job_id=job.id,
        fence=attempt.fence,
        node_rank=body.node_rank,
        has_notice=body.notice,
        requested_at=now,
    )
    session.add(drill)
    data = {"drill_id": drill.id, "node_rank": drill.node_rank, "notice": drill.has_notice}
    emit(session, project_id=job.project_id, job_id=job.id, kind="drill.requested", at=now, **data)
    session.flush()
    wake_after_commit(session, job.id, now=now)
    return drill


def _show(session: Session, job: Job, context: Context, response: Response) -> JobView:
    view = show_job(session, job, context.sealer)
    response.headers["ETag"] = etag_of(view)
    return view
