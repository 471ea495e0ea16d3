"""Reading the outbox for users. Ids rise in the order of commit, so following them misses nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.api.sse import Message, Read
from service.context import Context
from service.db.models import Event
from service.db.session import session_scope

STREAM_BATCH = 200


class EventView(BaseModel):
    id: int
    type: str
    at: datetime
    job_id: str | None
    data: dict[str, Any]

    @classmethod
    def of(cls, row: Event) -> Self:
        return cls.model_validate(row, from_attributes=True)


def list_events(
    session: Session, *, project_id: str, job_id: str | None, after: int | None, limit: int
) -> Sequence[Event]:
    """Oldest first."""
    query = select(Event).where(Event.project_id == project_id)
    if job_id is not None:
        query = query.where(Event.job_id == job_id)
    if after is not None:
        query = query.where(Event.id > after)
    return session.scalars(query.order_by(Event.id).limit(limit)).all()


def newest_event_id(session: Session, project_id: str) -> int:
    """0 before the first."""
    return session.scalar(select(func.max(Event.id)).where(Event.project_id == project_id)) or 0


def follow_events(context: Context, *, project_id: str, job_id: str | None) -> Read:
    """Reads for one stream."""

    def read(after: int) -> list[Message]:
        with session_scope(context.sessions, is_reader=True) as session:
            rows = list_events(session, project_id=project_id, job_id=job_id, after=after, limit=STREAM_BATCH)
            views = [EventView.of(row) for row in rows]
        return [Message(id=view.id, kind=view.type, data=view.model_dump_json()) for view in views]

    return read
