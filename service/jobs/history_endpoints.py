"""What became of a job's attempts."""

from __future__ import annotations

from service.api.auth import Viewer
from service.api.dependencies import Now, ReadDb
from service.api.pagination import Page
from service.api.routing import make_router
from service.jobs.history import list_preemptions, load_attempts, show_attempt
from service.jobs.queries import find_job
from service.jobs.schemas import AttemptView, PreemptionView

router = make_router("/v1/jobs/{job_id}", "jobs")


@router.get("/attempts")
def list_attempts(job_id: str, session: ReadDb, who: Viewer, now: Now) -> Page[AttemptView]:
    """Every attempt, oldest first."""
    job = find_job(session, job_id, who.project_id)
    return Page(items=[show_attempt(attempt, now) for attempt in load_attempts(session, job.id)])


@router.get("/preemptions")
def list_preemptions_endpoint(job_id: str, session: ReadDb, who: Viewer) -> Page[PreemptionView]:
    """Every loss of a running attempt and how the job came back, oldest first."""
    job = find_job(session, job_id, who.project_id)
    return Page(items=list_preemptions(load_attempts(session, job.id)))
