"""Accrual: the windows of an attempt's life at the prices in force, and the money that moves with each."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.budgets import service as budgets
from service.db.models import Attempt, Job, LedgerEntry
from service.domain.money import accrued_nano, ceil_second, floor_second, reserved_nano
from service.domain.price_book import PriceUnknown, PriceWindow
from service.domain.states import AttemptState
from service.prices.service import split_by_price

COMPUTE = "compute"


def list_accruing(session: Session) -> list[str]:
    """Attempts that cost money now."""
    is_live = Attempt.state != AttemptState.GONE
    return list(session.scalars(select(Attempt.id).where(is_live, Attempt.launched_at.is_not(None))))


def lock_attempt(session: Session, attempt_id: str) -> Attempt | None:
    """The attempt as it is now, locked until the transaction ends."""
    statement = select(Attempt).where(Attempt.id == attempt_id).with_for_update()
    return session.scalar(statement.execution_options(populate_existing=True))


def accrue(session: Session, attempt_id: str, *, until: datetime, now: datetime) -> int:
    """Enter what the attempt cost up to `until`, by the second; nano-dollars entered. Repeats enter nothing."""
    attempt = lock_attempt(session, attempt_id)
    if attempt is None or attempt.launched_at is None or attempt.state == AttemptState.GONE:
        return 0
    return _accrue_locked(session, attempt, until=until, now=now)


def close(session: Session, attempt: Attempt, *, gone_at: datetime, now: datetime) -> None:
    """The attempt is gone: enter its last window and give back whatever it still holds. The caller holds its lock."""
    if attempt.launched_at is not None:
        _accrue_locked(session, attempt, until=ceil_second(gone_at), now=now)
    project_id = _project_of(session, attempt)
    budgets.settle(session, project_id, attempt.job_id, spent_nano=0, released_nano=attempt.reserved_nano, now=now)
    attempt.reserved_nano = 0


def _accrue_locked(session: Session, attempt: Attempt, *, until: datetime, now: datetime) -> int:
    start, end = attempt.accrued_until, floor_second(until)
    if end <= start:
        return 0
    entered = sum(_enter(session, attempt, window, now) for window in _price_windows(session, attempt, start, end))
    attempt.accrued_until = end
    attempt.cost_nano += entered
    attempt.on_demand_cost_nano += accrued_nano(attempt.on_demand_hourly_nano, end - start, attempt.num_nodes)
    held = reserved_nano(attempt.ceiling_hourly_nano, attempt.covered_until - end, attempt.num_nodes)
    released, attempt.reserved_nano = attempt.reserved_nano - held, held
    session.flush()
    project_id = _project_of(session, attempt)
    budgets.settle(session, project_id, attempt.job_id, spent_nano=entered, released_nano=released, now=now)
    return entered


def _price_windows(session: Session, attempt: Attempt, start: datetime, end: datetime) -> tuple[PriceWindow, ...]:
    """Prices in force; without any quote, the ceiling: spending is never counted too low."""
    try:
        return split_by_price(session, attempt.offer_id, start, end)
    except PriceUnknown:
        return (PriceWindow(start=start, end=end, hourly_nano=attempt.ceiling_hourly_nano),)


def _enter(session: Session, attempt: Attempt, window: PriceWindow, now: datetime) -> int:
    amount = accrued_nano(window.hourly_nano, window.end - window.start, attempt.num_nodes)
    session.add(
        LedgerEntry(
            key=f"{COMPUTE}:{attempt.id}:{window.start.isoformat()}",
            project_id=_project_of(session, attempt),
            job_id=attempt.job_id,
            attempt_id=attempt.id,
            category=COMPUTE,
            window_start=window.start,
            window_end=window.end,
            hourly_nano=window.hourly_nano,
            num_nodes=attempt.num_nodes,
            amount_nano=amount,
            created_at=now,
        )
    )
    return amount


def _project_of(session: Session, attempt: Attempt) -> str:
    project_id = session.scalar(select(Job.project_id).where(Job.id == attempt.job_id))
    assert project_id is not None
    return project_id
