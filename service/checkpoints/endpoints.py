"""/v1/jobs/{job_id}/checkpoints: the register."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from sqlalchemy import select

from service.api.auth import Viewer
from service.api.dependencies import ReadDb
from service.api.pagination import Cursor, Limit, Page, decode_id_cursor, encode_cursor
from service.api.routing import make_router
from service.checkpoints.schemas import CheckpointView
from service.db.models import Checkpoint
from service.jobs.queries import find_job

router = make_router("/v1/jobs/{job_id}/checkpoints", "checkpoints")


@router.get("")
def list_checkpoints(
    job_id: str,
    session: ReadDb,
    who: Viewer,
    limit: Limit = 200,
    cursor: Cursor = None,
    has_deleted: Annotated[
        bool, Query(alias="include_deleted", description="those that retention let go, too")
    ] = False,
) -> Page[CheckpointView]:
    """Registered checkpoints, in the order of their registration."""
    job = find_job(session, job_id, who.project_id)
    query = select(Checkpoint).where(Checkpoint.job_id == job.id).order_by(Checkpoint.id).limit(limit + 1)
    if not has_deleted:
        query = query.where(Checkpoint.deleted_at.is_(None))
    if (after := decode_id_cursor(cursor)) is not None:
        query = query.where(Checkpoint.id > after)
    rows = session.scalars(query).all()
    return Page(
        items=[CheckpointView.of(row) for row in rows[:limit]],
        next_cursor=encode_cursor(rows[limit - 1].id) if len(rows) > limit else None,
    )
