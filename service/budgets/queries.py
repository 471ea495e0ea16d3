"""Finding and showing budgets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from service.api.money import to_usd
from service.api.problems import not_found
from service.budgets.schemas import BudgetView
from service.db.models import Budget, BudgetAlert


def find_budget(session: Session, budget_id: str, project_id: str, *, is_locked: bool = False) -> Budget:
    """Errors: Problem 404."""
    query = select(Budget).where(Budget.id == budget_id, Budget.project_id == project_id)
    budget = session.scalar(query.with_for_update() if is_locked else query)
    if budget is None:
        raise not_found("budget")
    return budget


def find_job_budget(session: Session, job_id: str) -> Budget:
    """Errors: Problem 404 for a job without one of its own."""
    budget = session.scalar(select(Budget).where(Budget.job_id == job_id))
    if budget is None:
        raise not_found("budget of the job's own")
    return budget


def list_budgets(
    session: Session, project_id: str, *, after: tuple[datetime, str] | None, limit: int
) -> Sequence[Budget]:
    """Newest first, the project's own and its jobs'."""
    query = select(Budget).where(Budget.project_id == project_id)
    if after is not None:
        query = query.where(tuple_(Budget.created_at, Budget.id) < after)
    return session.scalars(query.order_by(Budget.created_at.desc(), Budget.id.desc()).limit(limit)).all()


def show_budgets(session: Session, budgets: Sequence[Budget]) -> list[BudgetView]:
    crossed: dict[tuple[str, int], list[int]] = {}
    alerts = select(BudgetAlert).where(BudgetAlert.budget_id.in_([budget.id for budget in budgets]))
    for alert in session.scalars(alerts.order_by(BudgetAlert.threshold_percent)):
        crossed.setdefault((alert.budget_id, alert.generation), []).append(alert.threshold_percent)
    return [_show(budget, crossed.get((budget.id, budget.generation), [])) for budget in budgets]


def version_tag(budget: Budget) -> str:
    """Of what users change, the cap; spending goes on between a read and a write."""
    return f'"{budget.id}-{budget.generation}"'


def _show(budget: Budget, crossed: list[int]) -> BudgetView:
    return BudgetView(
        id=budget.id,
        project_id=budget.project_id,
        job_id=budget.job_id,
        cap_usd=to_usd(budget.cap_nano),
        spent_usd=to_usd(budget.spent_nano),
        reserved_usd=to_usd(budget.reserved_nano),
        remaining_usd=to_usd(budget.cap_nano - budget.spent_nano - budget.reserved_nano),
        thresholds_crossed=crossed,
        created_at=budget.created_at,
    )
