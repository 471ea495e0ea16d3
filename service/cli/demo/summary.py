"""The end of the demonstration for people."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.text import Text

from service.cli.demo.report import Report
from service.cli.output import clean, make_table
from service.cli.views.formats import seconds, size

_MAX_SAMPLE_LINES = 24


def print_summary(console: Console, report: Report) -> None:
    for part in (_facts(report), _preemptions(report), _attempts(report)):
        console.print(part)
        console.print()
    if report.sample:
        console.print(Text("a sample of what it learned to write:", style="bold"))
        for line in clean(report.sample).splitlines()[:_MAX_SAMPLE_LINES]:
            console.print(Text(f"  {line}", style="green"))


def _facts(report: Report) -> RenderableType:
    saved = 1 - report.cost_usd / report.on_demand_cost_usd if report.on_demand_cost_usd else 0.0
    verified = sum(item.verified for item in report.checkpoints)
    largest = max((item.size_bytes for item in report.checkpoints), default=0)
    rows = [
        ("job", f"{report.job.id}: {report.job.status} ({report.job.end_reason})"),
        ("steps", f"{report.steps:,} ({report.tokens or 0:,} tokens) in {seconds(report.wall_seconds)}"),
        ("loss", f"{_loss(report.first_loss)} → {_loss(report.final_loss)}, validation {_loss(report.val_loss)}"),
        ("checkpoints", f"{len(report.checkpoints)}, {verified} verified, {size(largest)} each"),
        ("cost", f"${report.cost_usd:.4f} of ${report.budget_usd or 0:.2f}"),
        ("on demand", f"${report.on_demand_cost_usd:.4f} for the same hours ({saved:.0%} saved)"),
    ]
    return make_table(("SUMMARY", ""), rows)


def _preemptions(report: Report) -> RenderableType:
    rows = [
        (
            "with notice" if item.notice else "without notice",
            item.at_step,
            item.resumed_from_step,
            item.steps_lost,
            seconds(item.seconds_to_first_step),
        )
        for item in report.preemptions
    ]
    columns = ("PREEMPTION", "AT STEP", "RESUMED FROM", "STEPS LOST", "TO FIRST NEW STEP")
    return make_table(columns, rows, right=columns[1:])


def _attempts(report: Report) -> RenderableType:
    rows = [(item.fence, item.offer, f"${item.hourly_usd:.2f}/h", seconds(item.seconds)) for item in report.attempts]
    return make_table(("FENCE", "OFFER", "PRICE", "TIME"), rows, right=("FENCE", "PRICE", "TIME"))


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
