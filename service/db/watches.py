"""The service's record of its own presence, so that its absence is never held against the nodes.

The API and the sweep each touch a watch every few seconds. A node cannot be heard while either is away; its silence
counts from the later of their returns.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from service.db.models import Watch
from service.domain.terms import GAP

API = "api"
SWEEP = "sweep"


def touch_watch(session: Session, name: str, *, now: datetime) -> None:
    """Say that the duty is being done now; a gap before it makes this a return."""
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    first = insert(Watch).values(name=name, last_at=now, returned_at=now)
    session.execute(first.on_conflict_do_nothing())
    watch = session.scalars(select(Watch).where(Watch.name == name).with_for_update()).one()
    if now - watch.last_at > GAP:
        watch.returned_at = now
    watch.last_at = max(watch.last_at, now)


def find_returned_at(session: Session, *, now: datetime) -> datetime:
    """Since when nodes could have been heard without interruption; `now` while they cannot be."""
    watches = session.scalars(select(Watch).where(Watch.name.in_((API, SWEEP)))).all()
    if len(watches) < 2 or any(now - watch.last_at > GAP for watch in watches):
        return now
    return max(watch.returned_at for watch in watches)
