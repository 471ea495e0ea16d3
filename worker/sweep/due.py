"""The sweep: every due job gets its tick, whatever the broker lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy.orm import Session

from service.context import Context
from service.db.claims import due_job_ids
from service.db.session import run_in_transaction
from service.db.watches import SWEEP, touch_watch


def sweep_due_jobs(context: Context, send: Callable[[str], None]) -> int:
    """Send every due job on its way; how many there were. Sending one twice costs nothing: the claim tells them apart."""
    job_ids = run_in_transaction(context.sessions, lambda session: _touch_and_list(session, context.clock()))
    for job_id in job_ids:
        send(job_id)
    return len(job_ids)


def _touch_and_list(session: Session, now: datetime) -> list[str]:
    touch_watch(session, SWEEP, now=now)
    return due_job_ids(session, now=now)
