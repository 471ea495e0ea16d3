"""One job as people see it."""

from __future__ import annotations

from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from service.cli.output import clean
from service.cli.views.formats import (
    STATUS_STYLES,
    ago,
    bar,
    fine_usd,
    hourly,
    moment,
    seconds,
    sparkline,
    thousands,
    usd,
)
from service.client.models import Job, JobError

_MAX_LOG_LINES = 15


def status_text(job: Job) -> Text:
    reason = job.end_reason or job.status_reason
    said = f"{job.status} ({reason})" if reason and reason != "completed" else job.status
    return Text(clean(said), style=STATUS_STYLES.get(job.status, ""))


def step_text(job: Job) -> str:
    return f"{job.step:,}/{job.target_steps:,}" if job.target_steps else f"{job.step:,}"


def render_job(job: Job, now: datetime, *, losses: list[float] | None = None) -> RenderableType:
    """`losses`, oldest first, are drawn as a line."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("job", Text.assemble((clean(job.name), "bold"), f"  {job.id}"))
    grid.add_row("status", status_text(job))
    grid.add_row("step", _progress(job))
    grid.add_row("loss", _loss(job, losses or []))
    grid.add_row("speed", f"{thousands(job.tokens_per_second)} tokens/s")
    grid.add_row("place", _place(job))
    grid.add_row("money", _money(job))
    grid.add_row("recovery", _recoveries(job))
    grid.add_row("time", _times(job, now))
    return Group(grid, *(_render_error(job.error) if job.error else ()))


def _progress(job: Job) -> str:
    drawn = f"{bar(job.step / job.target_steps)} " if job.target_steps else ""
    kept = f", checkpoint at {job.checkpoint_step:,}" if job.checkpoint_step is not None else ""
    return f"{drawn}{step_text(job)}{kept}"


def _loss(job: Job, losses: list[float]) -> str:
    if job.loss is None:
        return "-"
    return f"{job.loss:.4f}  {sparkline(losses)}" if losses else f"{job.loss:.4f}"


def _place(job: Job) -> str:
    attempt = job.attempt
    if attempt is None:
        return "no nodes"
    nodes = f"{attempt.num_nodes} x " if attempt.num_nodes > 1 else ""
    return f"{nodes}{clean(attempt.offer_id)} at {hourly(attempt.hourly_usd)} ({attempt.state}, fence {attempt.fence})"


def _money(job: Job) -> str:
    spent = f"{fine_usd(job.spent_usd)} spent"
    if job.budget_usd:
        share = float(job.spent_usd / job.budget_usd)
        spent = f"{bar(share)} {fine_usd(job.spent_usd)} of {usd(job.budget_usd)} spent ({share:.0%})"
    return f"{spent}, {fine_usd(job.reserved_usd)} reserved; on demand: {fine_usd(job.on_demand_cost_usd)}"


def _recoveries(job: Job) -> str:
    return f"{job.preemption_count} preemptions, {job.fault_count} faults; {job.checkpoint_count} checkpoints"


def _times(job: Job, now: datetime) -> str:
    end = job.ended_at or now
    took = seconds((end - job.created_at).total_seconds())
    return (
        f"submitted {moment(job.created_at)}, {'took' if job.ended_at else 'since'} {took}"
        if job.ended_at
        else (f"submitted {ago(job.created_at, now)}")
    )


def _render_error(error: JobError) -> list[RenderableType]:
    where = f" (rank {error.rank}, exit code {error.exit_code})" if error.rank is not None else ""
    lines: list[RenderableType] = [Text.assemble(("error: ", "bold red"), clean(error.message), where)]
    lines += [Text(f"  {clean(line)}", style="dim") for line in error.log_tail[-_MAX_LOG_LINES:]]
    if error.remedy:
        lines.append(Text.assemble(("  → ", "cyan"), clean(error.remedy)))
    return lines
