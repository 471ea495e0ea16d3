"""What endpoints ask for: the context, a transaction, the time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.orm import Session

from service.context import Context
from service.db.claims import wake_job
from service.db.session import session_scope

_WOKEN = "jobs_to_wake"


def get_context(request: Request) -> Context:
    return request.app.state.context


Ctx = Annotated[Context, Depends(get_context)]


def get_session(context: Ctx) -> Iterator[Session]:
    """The request's transaction: committed before the response is sent. Jobs it woke are announced after the commit."""
    with session_scope(context.sessions) as session:
        yield session
    for job_id in session.info.pop(_WOKEN, ()):
        context.wake(job_id)


def get_reader(context: Ctx) -> Iterator[Session]:
    """A transaction that only reads, and waits for no writer."""
    with session_scope(context.sessions, is_reader=True) as session:
        yield session


def get_now(context: Ctx) -> datetime:
    return context.clock()


Db = Annotated[Session, Depends(get_session, scope="function")]
ReadDb = Annotated[Session, Depends(get_reader, scope="function")]
Now = Annotated[datetime, Depends(get_now)]


def wake_after_commit(session: Session, job_id: str, *, now: datetime) -> None:
    """Mark a job as having news in this transaction, and tell the workers once it is committed."""
    wake_job(session, job_id, now=now)
    session.info.setdefault(_WOKEN, []).append(job_id)
