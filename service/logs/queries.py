"""Reading log lines: pages, tails, and what is new."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from pydantic import BaseModel
from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from service.api.sse import Message
from service.context import Context
from service.db.models import LogLineRow
from service.db.session import session_scope

STREAM_BATCH = 500
_OVERLAP = 256


class LogLineView(BaseModel):
    """One line as it was written: whoever displays it escapes it."""

    id: int
    at: datetime
    fence: int
    node_rank: int
    rank: int
    stream: str
    text: str

    @classmethod
    def of(cls, row: LogLineRow) -> Self:
        return cls.model_validate(row, from_attributes=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogFilter:
    job_id: str
    rank: int | None = None
    search: str | None = None

    def select(self) -> Select[LogLineRow]:
        query = select(LogLineRow).where(LogLineRow.job_id == self.job_id)
        if self.rank is not None:
            query = query.where(LogLineRow.rank == self.rank)
        if self.search:
            query = query.where(LogLineRow.text.icontains(self.search, autoescape=True))
        return query


def list_lines(session: Session, wanted: LogFilter, *, after: int | None, limit: int) -> Sequence[LogLineRow]:
    """In the order of arrival."""
    query = wanted.select() if after is None else wanted.select().where(LogLineRow.id > after)
    return session.scalars(query.order_by(LogLineRow.id).limit(limit)).all()


def tail_lines(session: Session, wanted: LogFilter, num_lines: int) -> list[LogLineRow]:
    """The last lines, in the order of arrival."""
    rows = session.scalars(wanted.select().order_by(LogLineRow.id.desc()).limit(num_lines)).all()
    return list(reversed(rows))


class LogFollower:
    """Reads what is new for one stream.

    Two nodes' lines may commit out of the order of their ids, so each read looks a little back and skips what was sent.
    """

    def __init__(self, context: Context, wanted: LogFilter, after: int) -> None:
        self._context, self._wanted, self._floor = context, wanted, after
        self._sent: deque[int] = deque(maxlen=_OVERLAP)

    def __call__(self, after: int) -> list[Message]:
        since = max(self._floor, after - _OVERLAP // 2)
        with session_scope(self._context.sessions, is_reader=True) as session:
            rows = list_lines(session, self._wanted, after=since, limit=STREAM_BATCH)
            new = [LogLineView.of(row) for row in rows if row.id not in self._sent]
        self._sent.extend(line.id for line in new)
        return [Message(id=line.id, kind="log", data=line.model_dump_json()) for line in new]
