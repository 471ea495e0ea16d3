"""The guard: an independent look at the money. It decides nothing; it wakes the reconciler and raises alarms."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.budgets.service import insert_alert
from service.context import Context
from service.db.claims import wake_job
from service.db.models import Attempt, Budget, Job
from service.db.outbox import emit
from service.db.session import run_in_transaction
from service.domain.money import from_nano
from service.domain.states import AttemptState
from service.prices.service import list_priced_offers

EXCESS_PERCENT = 101
"""The alert row that stands for spending past the cap."""


def guard(context: Context) -> tuple[str, ...]:
    """Alarm each cap that is exceeded, once; the jobs woken because their price or grant needs a decision."""
    return run_in_transaction(
        context.sessions, partial(_guard, now=context.clock(), quote_stale=context.settings.quote_stale)
    )


def _guard(session: Session, now: datetime, quote_stale: timedelta) -> tuple[str, ...]:
    for budget in session.scalars(select(Budget).where(Budget.spent_nano > Budget.cap_nano).order_by(Budget.id)):
        _alarm_excess(session, budget, now)
    woken = tuple(sorted(_jobs_to_wake(session, now, quote_stale)))
    for job_id in woken:
        wake_job(session, job_id, now=now)
    return woken


def _alarm_excess(session: Session, budget: Budget, now: datetime) -> None:
    if not insert_alert(session, budget, EXCESS_PERCENT, now=now):
        return
    excess = budget.spent_nano - budget.cap_nano
    emit(
        session,
        project_id=budget.project_id,
        job_id=budget.job_id,
        kind="budget.exceeded",
        at=now,
        budget_id=budget.id,
        cap_usd=str(from_nano(budget.cap_nano)),
        spent_usd=str(from_nano(budget.spent_nano)),
        excess_usd=str(from_nano(excess)),
    )


def _jobs_to_wake(session: Session, now: datetime, quote_stale: timedelta) -> set[str]:
    """Jobs with an attempt whose price has passed its ceiling, or whose grant is over."""
    prices = {
        priced.offer.id: priced.hourly_nano for priced in list_priced_offers(session, now, quote_stale=quote_stale)
    }
    live = session.execute(
        select(Attempt.job_id, Attempt.offer_id, Attempt.ceiling_hourly_nano, Attempt.grant_until)
        .join(Job, Job.id == Attempt.job_id)
        .where(Attempt.state.in_((AttemptState.LAUNCHING, AttemptState.UP)))
    )
    return {
        job_id
        for job_id, offer_id, ceiling, grant_until in live
        if (prices.get(offer_id) or 0) > ceiling or grant_until < now
    }
