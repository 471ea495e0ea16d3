"""/v1/events and /v1/jobs/{job_id}/events: pages and streams."""

from __future__ import annotations

from fastapi import Request
from fastapi.responses import StreamingResponse
from sqlalchemy.orm import Session

from service.api.auth import Viewer
from service.api.dependencies import Ctx, ReadDb
from service.api.pagination import Cursor, Limit, Page, decode_id_cursor, encode_cursor
from service.api.routing import make_router
from service.api.sse import LastEventId, parse_last_event_id, stream
from service.db.session import session_scope
from service.events.queries import EventView, follow_events, list_events, newest_event_id
from service.jobs.queries import find_job

router = make_router("/v1", "events")
_STREAM = {200: {"content": {"text/event-stream": {}}, "description": "server-sent events"}}


@router.get("/events")
def list_project_events(session: ReadDb, who: Viewer, limit: Limit = 100, cursor: Cursor = None) -> Page[EventView]:
    """The project's events, oldest first."""
    return _page(session, who.project_id, None, cursor, limit)


@router.get("/events/stream", response_class=StreamingResponse, responses=_STREAM)  # type: ignore[arg-type]
def stream_project_events(
    request: Request, context: Ctx, who: Viewer, last_event_id: LastEventId = None
) -> StreamingResponse:
    """The project's events from now on, or from Last-Event-ID on."""
    with session_scope(context.sessions, is_reader=True) as session:
        after = parse_last_event_id(last_event_id, newest_event_id(session, who.project_id))
    read = follow_events(context, project_id=who.project_id, job_id=None)
    return stream(read, after=after, closing=request.app.state.closing)


@router.get("/jobs/{job_id}/events")
def list_job_events(
    job_id: str, session: ReadDb, who: Viewer, limit: Limit = 100, cursor: Cursor = None
) -> Page[EventView]:
    """The job's events, oldest first."""
    return _page(session, who.project_id, find_job(session, job_id, who.project_id).id, cursor, limit)


@router.get("/jobs/{job_id}/events/stream", response_class=StreamingResponse, responses=_STREAM)  # type: ignore[arg-type]
def stream_job_events(
    job_id: str, request: Request, context: Ctx, who: Viewer, last_event_id: LastEventId = None
) -> StreamingResponse:
    """The job's events from its first on, or from Last-Event-ID on."""
    with session_scope(context.sessions, is_reader=True) as session:
        job = find_job(session, job_id, who.project_id)
    read = follow_events(context, project_id=who.project_id, job_id=job.id)
    return stream(read, after=parse_last_event_id(last_event_id, 0), closing=request.app.state.closing)


def _page(session: Session, project_id: str, job_id: str | None, cursor: str | None, limit: int) -> Page[EventView]:
    after = decode_id_cursor(cursor)
    rows = list_events(session, project_id=project_id, job_id=job_id, after=after, limit=limit + 1)
    return Page(
        items=[EventView.of(row) for row in rows[:limit]],
        next_cursor=encode_cursor(rows[limit - 1].id) if len(rows) > limit else None,
    )
