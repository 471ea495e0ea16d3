"""The budget's stop, shown: checkpoint, no nodes, paused; then a top-up, and whether a step was repeated."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from rich.text import Text

from service.cli.output import stderr
from service.cli.views.formats import fine_usd, usd
from service.client.api import Godwit
from service.client.models import Job


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetStop:
    """One stop, as the records showed it before the top-up."""

    fence: int | None
    last_step: int | None
    checkpoint_step: int | None


def is_stopped_by_budget(job: Job) -> bool:
    return job.status == "paused" and "budget" in job.holds


def show_and_top_up(client: Godwit, job: Job, amount_usd: Decimal) -> BudgetStop:
    """Shows the stop, then does what `godwit budget top-up` does."""
    attempts = client.attempts(job.id)
    last = attempts[-1] if attempts else None
    live = sum(attempt.num_nodes for attempt in attempts if attempt.state != "gone")
    console = stderr()
    console.print(Text(f"the budget stopped the job: {job.status} ({job.status_reason})", style="bold yellow"))
    console.print(f"  spent {fine_usd(job.spent_usd)} of {usd(job.budget_usd)}, reserved {fine_usd(job.reserved_usd)}")
    console.print(f"  nodes: {live}; last checkpoint at step {job.checkpoint_step}; last step {job.step}")
    console.print(Text(f"$ godwit budget top-up {job.id} {amount_usd}", style="bold"))
    budget = client.top_up(client.job_budget(job.id).id, str(amount_usd))
    console.print(f"  the cap is {usd(budget.cap_usd)} now")
    return BudgetStop(
        fence=last.fence if last else None,
        last_step=last.last_step if last else None,
        checkpoint_step=job.checkpoint_step,
    )


def steps_repeated(client: Godwit, job_id: str, stop: BudgetStop) -> int | None:
    """Steps done before the stop that were done again after it; None when nothing ran before or after."""
    if stop.fence is None or stop.last_step is None:
        return None
    after = [item for item in client.attempts(job_id) if item.fence > stop.fence and item.resumed_from_step is not None]
    return max(0, stop.last_step - (after[0].resumed_from_step or 0)) if after else None
