"""Admission and accounting against every budget that applies: the job's own and its project's; the tightest rules.

Rows are always locked in the order of their ids, so that two admissions never wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from service.db.claims import wake_job
from service.db.models import Budget, BudgetAlert, Job
from service.db.outbox import emit
from service.domain.money import from_nano
from service.domain.snapshot import MoneyView

THRESHOLDS_PERCENT = (50, 80)
STOP_PERCENT = 100
"""The 100 % alert is the budget stop itself, whenever what is left no longer fits a grant."""


def list_applicable(
    session: Session, project_id: str, job_id: str | None, *, is_locked: bool = False
) -> Sequence[Budget]:
    """The budgets that a job's spending counts against, in the order in which they are locked; read afresh."""
    applies = Budget.job_id.is_(None) if job_id is None else or_(Budget.job_id.is_(None), Budget.job_id == job_id)
    statement = select(Budget).where(Budget.project_id == project_id, applies).order_by(Budget.id)
    statement = statement.with_for_update() if is_locked else statement
    return session.scalars(statement.execution_options(populate_existing=True)).all()


def view_money(session: Session, project_id: str, job_id: str) -> MoneyView:
    """What is available over all budgets that apply; None where none does."""
    budgets = list_applicable(session, project_id, job_id)
    return MoneyView(
        available_nano=min((b.cap_nano - b.spent_nano - b.reserved_nano for b in budgets), default=None),
        unspent_nano=min((b.cap_nano - b.spent_nano for b in budgets), default=None),
    )


def reserve(session: Session, project_id: str, job_id: str, amount_nano: int) -> bool:
    """Set money aside in every budget that applies, or in none; False when one of them has too little.

    One conditional UPDATE a budget, so that concurrent admissions can never pass a cap together. The locks are kept to
    the transaction's end after a refusal too: the hold that follows from it cannot cross a top-up.
    """
    list_applicable(session, project_id, job_id, is_locked=True)
    with session.begin_nested() as savepoint:
        for budget in list_applicable(session, project_id, job_id):
            fits = Budget.spent_nano + Budget.reserved_nano + amount_nano <= Budget.cap_nano
            statement = update(Budget).where(Budget.id == budget.id, fits)
            statement = statement.values(reserved_nano=Budget.reserved_nano + amount_nano).returning(Budget.id)
            if session.scalar(statement.execution_options(synchronize_session=False)) is None:
                savepoint.rollback()
                return False
    return True


def is_spent(session: Session, project_id: str, job_id: str, need_nano: int) -> bool:
    """Whether only a top-up could make room, judged under the budgets' locks: one may have come since it was first asked."""
    budgets = list_applicable(session, project_id, job_id, is_locked=True)
    return any(budget.spent_nano + need_nano > budget.cap_nano for budget in budgets)


def settle(
    session: Session, project_id: str, job_id: str, *, spent_nano: int, released_nano: int, now: datetime
) -> None:
    """Move money from reserved to spent (and give back what is over) in one statement a budget; tell the thresholds."""
    if not spent_nano and not released_nano:
        return
    for budget in list_applicable(session, project_id, job_id):
        session.execute(
            update(Budget)
            .where(Budget.id == budget.id)
            .values(spent_nano=Budget.spent_nano + spent_nano, reserved_nano=Budget.reserved_nano - released_nano)
            .execution_options(synchronize_session=False)
        )
    if spent_nano:
        tell_thresholds(session, project_id, job_id, now=now)


def tell_thresholds(session: Session, project_id: str, job_id: str, *, now: datetime) -> None:
    """An event for each threshold of actual spend that was not told of yet."""
    for budget in list_applicable(session, project_id, job_id):
        for percent in THRESHOLDS_PERCENT:
            if budget.spent_nano * 100 >= budget.cap_nano * percent:
                _tell_once(session, budget, percent, now=now)
        if budget.spent_nano >= budget.cap_nano:
            _tell_once(session, budget, STOP_PERCENT, now=now)


def tell_stop(session: Session, project_id: str, job_id: str, *, need_nano: int, now: datetime) -> None:
    """The 100 % alert: some budget that applies has no room for the next grant, and the job is being stopped for it."""
    for budget in list_applicable(session, project_id, job_id):
        if budget.spent_nano + budget.reserved_nano + need_nano > budget.cap_nano:
            _tell_once(session, budget, STOP_PERCENT, now=now, stopped_job_id=job_id)


def top_up(session: Session, budget_id: str, amount_nano: int, *, now: datetime) -> Budget | None:
    """Raise a cap and let go of the jobs that it had stopped; None when there is no such budget.

    A negative amount lowers the cap, never below what is spent and reserved. Errors: ValueError.
    """
    statement = select(Budget).where(Budget.id == budget_id).with_for_update()
    budget = session.scalar(statement.execution_options(populate_existing=True))
    if budget is None:
        return None
    cap_nano = budget.cap_nano + amount_nano
    if cap_nano < max(budget.spent_nano + budget.reserved_nano, 1):
        raise ValueError("the cap cannot be below what is spent and reserved")
    budget.cap_nano = cap_nano
    budget.generation += 1
    session.flush()
    _keep_told(session, budget, now=now)
    changed = {"budget_id": budget.id, "cap_usd": str(from_nano(cap_nano)), "amount_usd": str(from_nano(amount_nano))}
    emit(session, project_id=budget.project_id, job_id=budget.job_id, kind="budget.changed", at=now, **changed)
    if amount_nano > 0:
        _release_jobs(session, budget, now=now)
    return budget


def _keep_told(session: Session, budget: Budget, *, now: datetime) -> None:
    """A new cap re-arms the thresholds that are ahead again; those that are still behind were told already."""
    for percent in THRESHOLDS_PERCENT:
        if budget.spent_nano * 100 >= budget.cap_nano * percent:
            insert_alert(session, budget, percent, now=now)


def _release_jobs(session: Session, budget: Budget, *, now: datetime) -> None:
    held = select(Job.id).where(Job.project_id == budget.project_id, Job.has_budget_hold)
    if budget.job_id is not None:
        held = held.where(Job.id == budget.job_id)
    for job_id in session.scalars(held.order_by(Job.id)).all():
        session.execute(update(Job).where(Job.id == job_id).values(has_budget_hold=False))
        wake_job(session, job_id, now=now)


def _tell_once(session: Session, budget: Budget, percent: int, *, now: datetime, **more: str) -> None:
    if not insert_alert(session, budget, percent, now=now):
        return
    emit(
        session,
        project_id=budget.project_id,
        job_id=budget.job_id or more.get("stopped_job_id"),
        kind="budget.threshold_reached",
        at=now,
        budget_id=budget.id,
        threshold_percent=percent,
        spent_usd=str(from_nano(budget.spent_nano)),
        reserved_usd=str(from_nano(budget.reserved_nano)),
        cap_usd=str(from_nano(budget.cap_nano)),
        **more,
    )


def insert_alert(session: Session, budget: Budget, percent: int, *, now: datetime) -> bool:
    """Whether the crossing is news. The row's key is (budget, generation, threshold): of two that see it, one inserts."""
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    row = {
        "budget_id": budget.id,
        "generation": budget.generation,
        "threshold_percent": percent,
        "crossed_at": now,
    }
    statement = insert(BudgetAlert).values(row).on_conflict_do_nothing().returning(BudgetAlert.threshold_percent)
    return session.scalar(statement) is not None
