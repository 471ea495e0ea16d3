"""Budgets as the API shows and takes them."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from service.api.money import UsdText
from training.protocol.base import Usd, Value


class BudgetCreate(Value):
    """The project's budget, which covers all of its jobs."""

    cap_usd: Usd


class BudgetUpdate(Value):
    cap_usd: Usd


class TopUpRequest(Value):
    amount_usd: Usd = Field(description="added to the cap; jobs that waited for money go on")


class BudgetView(BaseModel):
    """`spent + reserved <= cap` on every admission; `remaining` is what can still be admitted."""

    id: str
    project_id: str
    job_id: str | None = Field(description="null: the project's budget")
    cap_usd: UsdText
    spent_usd: UsdText
    reserved_usd: UsdText
    remaining_usd: UsdText
    thresholds_crossed: list[int] = Field(description="percent of the cap, of the cap as it is now")
    created_at: datetime
