"""A worker's hold on a job: taken with a new token, timed by the database, lost to whoever takes it next."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from service.db.models import Job
from service.db.session import database_now

CLAIM = timedelta(seconds=30)
"""How long a worker that died holds its job up. A living one prolongs its claim while it works."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    job_id: str
    token: str
    wakes: int
    """What had been asked for when the claim began; more at its end means that there is news."""


def claim_job(session: Session, job_id: str, *, now: datetime) -> Claim | None:
    """Take a due job that nobody holds, or None. Two workers never both succeed."""
    instant = database_now(session)
    is_free = or_(Job.claimed_until.is_(None), Job.claimed_until < instant)
    due = select(Job.id).where(Job.id == job_id, Job.due_at <= now, is_free).with_for_update(skip_locked=True)
    if session.scalar(due) is None:
        return None
    token = secrets.token_hex(16)
    wakes = session.scalar(
        update(Job)
        .where(Job.id == job_id, is_free)
        .values(claim_token=token, claimed_until=instant + CLAIM)
        .returning(Job.wakes)
    )
    return None if wakes is None else Claim(job_id=job_id, token=token, wakes=wakes)


def holds_claim(session: Session, claim: Claim) -> bool:
    """Lock the job's row under the token; False when another worker has taken it meanwhile. Extends the claim."""
    result = session.execute(
        update(Job)
        .where(Job.id == claim.job_id, Job.claim_token == claim.token)
        .values(claimed_until=database_now(session) + CLAIM)
    )
    return result.rowcount == 1  # pyright: ignore[reportAttributeAccessIssue]


def wake_job(session: Session, job_id: str, *, now: datetime) -> None:
    """Ask for a tick. Callable from anywhere; a tick under way sees `wakes` and comes back."""
    session.execute(update(Job).where(Job.id == job_id).values(wakes=Job.wakes + 1, due_at=now))


def due_job_ids(session: Session, *, now: datetime, limit: int = 500) -> list[str]:
    """Every due job that nobody holds, longest due first: what the sweep sends out whatever the broker lost."""
    instant = database_now(session)
    is_free = or_(Job.claimed_until.is_(None), Job.claimed_until < instant)
    return list(session.scalars(select(Job.id).where(Job.due_at <= now, is_free).order_by(Job.due_at).limit(limit)))
