"""The purge: rows that nobody will ask for again. Log files and metrics in the bucket outlive them."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from service.api.idempotency import forget_old_requests
from service.context import Context
from service.db.models import LogLineRow
from service.db.session import run_in_transaction

KEEP_LOGS = timedelta(days=30)
_BATCH = 5000


def purge(context: Context) -> int:
    """Delete one batch of each kind; how many rows. What is left over waits for the next time."""
    return run_in_transaction(context.sessions, lambda session: _purge(session, context.clock()))


def _purge(session: Session, now: datetime) -> int:
    old = select(LogLineRow.id).where(LogLineRow.at < now - KEEP_LOGS).order_by(LogLineRow.id).limit(_BATCH)
    ids = session.scalars(old).all()
    session.execute(delete(LogLineRow).where(LogLineRow.id.in_(ids)))
    return len(ids) + forget_old_requests(session, now)
