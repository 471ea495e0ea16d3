"""Events join the caller's transaction: what happened and the word of it commit together or not at all.

Events are written at the very end of a transaction under one advisory lock, so that ids rise in the order of commit and a
reader that follows ids misses none. (SQLite has one writer at a time anyway.)
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

from service.db.models import Event
from service.domain.event_types import EVENT_TYPES

_PENDING = "pending_events"
_LOCK_KEY = 7_263_901_145


def emit(session: Session, *, project_id: str, job_id: str | None, kind: str, at: datetime, **data: Any) -> None:
    """Record that something happened. `data` is public: no secret may be in it.

    Errors: ValueError for a kind that the catalogue does not have, a defect of ours.
    """
    if kind not in EVENT_TYPES:
        raise ValueError(f"{kind!r} is not in the catalogue of events")
    session.info.setdefault(_PENDING, []).append(
        Event(project_id=project_id, job_id=job_id, type=kind, at=at, data=data)
    )


def write_pending_events(session: Session) -> None:
    """Before a commit: add what was emitted. A rolled-back session drops it with the rest."""
    pending = session.info.pop(_PENDING, [])
    if not pending:
        return
    session.flush()
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
    session.add_all(pending)
    session.flush()
