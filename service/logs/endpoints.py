"""/v1/jobs/{job_id}/logs: pages, tails, search and a stream."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import StreamingResponse

from service.api.auth import Viewer
from service.api.dependencies import Ctx, ReadDb
from service.api.pagination import Cursor, Page, decode_id_cursor, encode_cursor
from service.api.routing import make_router
from service.api.sse import LastEventId, parse_last_event_id, stream
from service.db.session import session_scope
from service.jobs.queries import find_job
from service.logs.queries import LogFilter, LogFollower, LogLineView, list_lines, tail_lines

router = make_router("/v1/jobs/{job_id}/logs", "logs")
MAX_LINES = 1000

Rank = Annotated[int | None, Query(ge=-1, le=1_000_000, description="-1: agents and set-up")]
Search = Annotated[str | None, Query(min_length=1, max_length=200, description="part of the text, in any case")]


@router.get("")
def list_logs(
    job_id: str,
    session: ReadDb,
    who: Viewer,
    limit: Annotated[int, Query(ge=1, le=MAX_LINES)] = 200,
    cursor: Cursor = None,
    tail: Annotated[int | None, Query(ge=1, le=MAX_LINES, description="the last lines instead of a page")] = None,
    rank: Rank = None,
    search: Search = None,
) -> Page[LogLineView]:
    """Lines in the order of arrival."""
    job = find_job(session, job_id, who.project_id)
    wanted = LogFilter(job_id=job.id, rank=rank, search=search)
    if tail is not None:
        rows = tail_lines(session, wanted, tail)
        return Page(items=[LogLineView.of(row) for row in rows])
    lines = list_lines(session, wanted, after=decode_id_cursor(cursor), limit=limit)
    return Page(
        items=[LogLineView.of(row) for row in lines],
        next_cursor=encode_cursor(lines[-1].id) if len(lines) == limit else None,
    )


@router.get("/stream", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
def stream_logs(
    job_id: str,
    request: Request,
    context: Ctx,
    who: Viewer,
    rank: Rank = None,
    search: Search = None,
    tail: Annotated[int, Query(ge=0, le=MAX_LINES, description="earlier lines to begin with")] = 100,
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """Server-sent events `log`, from the last lines or from Last-Event-ID on, until the client goes."""
    with session_scope(context.sessions, is_reader=True) as session:
        wanted = LogFilter(job_id=find_job(session, job_id, who.project_id).id, rank=rank, search=search)
        first = tail_lines(session, wanted, max(tail, 1))
    default = 0 if not first else first[0].id - 1 if tail else first[-1].id
    after = parse_last_event_id(last_event_id, default)
    return stream(LogFollower(context, wanted, after), after=after, closing=request.app.state.closing)
