"""/v1/jobs: submit, list and show. Control and history are in the modules beside this one."""

from __future__ import annotations

from typing import Annotated

import obstore
from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from obstore.exceptions import BaseError

from service.api.auth import Operator, Viewer
from service.api.dependencies import Ctx, Db, Now, ReadDb
from service.api.etag import etag_of
from service.api.idempotency import OnceDep
from service.api.pagination import Cursor, Limit, Page, decode_time_cursor, encode_cursor
from service.api.problems import Problem, invalid
from service.api.routing import make_router
from service.context import Context
from service.domain.states import JobStatus
from service.jobs import control_endpoints, history_endpoints
from service.jobs.dry_run import dry_run
from service.jobs.queries import find_job, list_jobs
from service.jobs.schemas import DryRunView, JobSummary, JobView
from service.jobs.submit import check_deadline, submit_job
from service.jobs.views import show_job, show_jobs
from training.protocol.bucket import bundle_key
from training.protocol.job_spec import JobSpec

_jobs = make_router("/v1/jobs", "jobs")


@_jobs.post(
    "",
    status_code=201,
    response_model=JobView,
    responses={200: {"model": DryRunView, "description": "with dry_run: what a submission would meet"}},
)
def submit_job_endpoint(
    body: JobSpec,
    session: Db,
    who: Operator,
    once: OnceDep,
    context: Ctx,
    now: Now,
    is_dry_run: Annotated[bool, Query(alias="dry_run", description="say what would happen and write nothing")] = False,
) -> Response:
    """Submit a job. Secrets are sealed and never shown again."""
    _check_bundle(context, body)
    if is_dry_run:
        check_deadline(body, now)
        view = dry_run(session, body, project_id=who.project_id, now=now, terms=context.settings.terms)
        return JSONResponse(view.model_dump(mode="json"))

    def create() -> JobView:
        job = submit_job(session, context, body, project_id=who.project_id, now=now)
        return show_job(session, job, context.sealer)

    return once.answer(session, who, create)


@_jobs.get("")
def list_jobs_endpoint(
    session: ReadDb,
    who: Viewer,
    limit: Limit = 50,
    cursor: Cursor = None,
    status: Annotated[list[JobStatus], Query(max_length=16)] = [],  # noqa: B006 - FastAPI copies it
    name: Annotated[str | None, Query(max_length=63)] = None,
    label: Annotated[str | None, Query(min_length=1, max_length=320, description="`name` or `name=value`")] = None,
) -> Page[JobSummary]:
    """The project's jobs, newest first."""
    jobs = list_jobs(
        session,
        who.project_id,
        statuses=status,
        name=name,
        label=label,
        after=decode_time_cursor(cursor),
        limit=limit + 1,
    )
    last = jobs[limit - 1] if len(jobs) > limit else None
    return Page(
        items=show_jobs(session, jobs[:limit]),
        next_cursor=encode_cursor(last.created_at.isoformat(), last.id) if last else None,
    )


@_jobs.get("/{job_id}")
def show_job_endpoint(job_id: str, session: ReadDb, who: Viewer, context: Ctx, response: Response) -> JobView:
    """Status with its reason, progress, place, money and error."""
    view = show_job(session, find_job(session, job_id, who.project_id), context.sealer)
    response.headers["ETag"] = etag_of(view)
    return view


def _check_bundle(context: Context, spec: JobSpec) -> None:
    """Before any transaction is open: the bucket may be slow. Errors: Problem 422, 503."""
    if spec.workdir is None:
        return
    try:
        obstore.head(context.bucket, bundle_key(spec.workdir))
    except FileNotFoundError as error:
        raise invalid("workdir", "no such bundle", "Upload it first: POST /v1/bundles.") from error
    except BaseError as error:
        raise Problem(503, "bucket_unavailable", "The bucket is out of reach.", remedy="Try again later.") from error


router = APIRouter()
router.include_router(_jobs)
router.include_router(control_endpoints.router)
router.include_router(history_endpoints.router)
