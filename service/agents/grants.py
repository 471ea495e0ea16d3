"""Grants: how much longer an attempt may run, and the money that each prolongation sets aside first."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from service.budgets import service as budgets
from service.db.models import Attempt, Job
from service.domain.grants import covered_until, renewal_steps
from service.domain.money import reserved_nano
from service.domain.terms import Terms


def renew_grant(session: Session, job: Job, attempt: Attempt, *, terms: Terms, now: datetime) -> bool:
    """Prolong a grant that is half used; False when no budget has room for even the smallest one.

    The caller holds the locks on job and attempt. Money is reserved in the same transaction as the grant is given.
    """
    options = renewal_steps(grant_until=attempt.grant_until, now=now, terms=terms)
    for grant_until in options:
        if _extend(session, job, attempt, grant_until, terms):
            return True
    return not options


def _extend(session: Session, job: Job, attempt: Attempt, grant_until: datetime, terms: Terms) -> bool:
    covers = covered_until(grant_until, terms)
    added = _held(attempt, covers) - attempt.reserved_nano
    if added > 0 and not budgets.reserve(session, job.project_id, job.id, added):
        return False
    attempt.reserved_nano += max(added, 0)
    attempt.grant_until, attempt.covered_until = grant_until, covers
    return True


def smallest_need(attempt: Attempt, *, terms: Terms, now: datetime) -> int:
    """Nano-dollars that the smallest renewal that was tried would have added."""
    smallest = renewal_steps(grant_until=attempt.grant_until, now=now, terms=terms)[-1]
    return max(0, _held(attempt, covered_until(smallest, terms)) - attempt.reserved_nano)


def _held(attempt: Attempt, covers: datetime) -> int:
    return reserved_nano(attempt.ceiling_hourly_nano, covers - attempt.accrued_until, attempt.num_nodes)
