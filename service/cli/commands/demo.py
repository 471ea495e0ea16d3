"""`demo`: the main job, end to end, on this machine."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from service.cli.connect import open_client
from service.cli.demo.budget_stop import BudgetStop, is_stopped_by_budget, show_and_top_up, steps_repeated
from service.cli.demo.embedded import choose_place, embedded_service
from service.cli.demo.report import Report, collect_report, write_report
from service.cli.demo.spec import full_cap_usd, load_demo_spec
from service.cli.demo.summary import print_summary
from service.cli.errors import CliError
from service.cli.options import Json, examples
from service.cli.output import note, print_json, stderr, stdout
from service.cli.spec.build import to_body
from service.cli.views.events import event_line
from service.cli.views.watch import LINE_EVERY_SECONDS, POLL_SECONDS, JobFeed, progress_line, render_feed
from service.client.api import Godwit
from training.protocol.job_spec import JobSpec


def register(app: typer.Typer) -> None:
    app.command(
        "demo", epilog=examples("godwit demo", "godwit demo --report report.json", "godwit demo --budget 0.36")
    )(demo)


def demo(
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="USD", help="The job's cap; too small a one shows the stop.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", dir_okay=False, help="Write the figures there, as JSON.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the data folder.")] = False,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", file_okay=False, help="Use this folder and keep it.")
    ] = None,
    market_profile: Annotated[str, typer.Option("--market-profile", help="The simulated market's.")] = "demo",
    timeout_seconds: Annotated[float, typer.Option("--timeout", min=1, help="Give up after so many seconds.")] = 1800,
    as_json: Json = False,
) -> None:
    """Train a small GPT through preemptions, inside a budget: a service of its own, one job, and what came of it."""
    spec = load_demo_spec(budget)
    note("starting a service for the demonstration …")
    with embedded_service(choose_place(data_dir, keep=keep), market_profile) as account, open_client(account) as client:
        result = _Demonstration(client, spec, time.monotonic() + timeout_seconds).run()
        _finish(result, report, as_json)
        if result.job.status != "succeeded":
            error = client.job(result.job.id).error
            raise CliError(
                f"the job ended as {result.job.status} ({result.job.end_reason})"
                + (f": {error.message}" if error else ""),
                remedy=error.remedy if error else None,
            )


def _finish(result: Report, path: Path | None, as_json: bool) -> None:
    if path is not None:
        write_report(result, path)
        note(f"report: {path}")
    if as_json:
        print_json(result)
    else:
        print_summary(stdout(), result)


class _Demonstration:
    """One job from submit to end, shown as it goes."""

    def __init__(self, client: Godwit, spec: JobSpec, give_up_at: float) -> None:
        self._client, self._give_up_at = client, give_up_at
        job = client.submit(to_body(spec))
        self._feed = JobFeed(client, job.id)
        self._stops: list[BudgetStop] = []
        self._console = stderr()

    def run(self) -> Report:
        show = self._show_live if self._console.is_terminal else self._show_plain
        while True:
            show(self._console)
            if self._feed.job.is_over:
                break
            self._stops.append(show_and_top_up(self._client, self._feed.job, self._top_up_usd()))
            self._wait_until_held_no_more()
        for stop in self._stops:
            self._say_what_was_repeated(stop)
        return collect_report(self._client, self._feed.job.id)

    def _is_to_act(self) -> bool:
        """The job has ended or waits for money. Errors: CliError past the time limit."""
        if time.monotonic() > self._give_up_at:
            raise CliError(f"not done in time: the job is {self._feed.job.status}", remedy="give it more by --timeout")
        return self._feed.job.is_over or is_stopped_by_budget(self._feed.job)

    def _show_live(self, console: Console) -> None:
        with Live(console=console, refresh_per_second=4) as live:
            while True:
                self._feed.poll()
                live.update(render_feed(self._feed, datetime.now(UTC)))
                if self._is_to_act():
                    return
                time.sleep(POLL_SECONDS)

    def _show_plain(self, console: Console) -> None:
        said_at = 0.0
        while True:
            for event in self._feed.poll():
                console.print(event_line(event))
            is_to_act = self._is_to_act()
            if is_to_act or time.monotonic() - said_at >= LINE_EVERY_SECONDS:
                console.print(progress_line(self._feed.job))
                said_at = time.monotonic()
            if is_to_act:
                return
            time.sleep(POLL_SECONDS)

    def _top_up_usd(self) -> Decimal:
        """Up to the whole run's cap, and no less than as much again."""
        cap = self._feed.job.budget_usd or Decimal(0)
        return max(full_cap_usd() - cap, cap)

    def _wait_until_held_no_more(self) -> None:
        while is_stopped_by_budget(self._feed.job) and time.monotonic() < self._give_up_at:
            time.sleep(POLL_SECONDS / 2)
            self._feed.refresh_job()

    def _say_what_was_repeated(self, stop: BudgetStop) -> None:
        repeated = steps_repeated(self._client, self._feed.job.id, stop)
        if repeated is None:
            note("after the top-up: no step had been done before the stop, so none was repeated")
        elif repeated == 0:
            note(f"after the top-up: resumed from step {stop.last_step}, no step was repeated")
        else:
            note(f"after the top-up: {repeated} steps were repeated")
