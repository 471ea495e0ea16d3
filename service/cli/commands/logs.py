"""`logs`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from service.cli.connect import find_job_id, open_client
from service.cli.options import JobRef, Json, examples
from service.cli.output import clean, print_json, print_json_line, stdout
from service.cli.views.formats import clock
from service.client.models import LogLine

MAX_TAIL = 1000


def register(app: typer.Typer) -> None:
    app.command("logs", epilog=examples("godwit logs my-job", "godwit logs my-job -f", "godwit logs my-job --rank 0"))(
        logs
    )


def logs(
    job: JobRef,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    tail: Annotated[int, typer.Option("--tail", "-n", min=1, max=MAX_TAIL, help="Begin with the last lines.")] = 100,
    rank: Annotated[int | None, typer.Option("--rank", min=-1, help="Only this rank; -1: agents and set-up.")] = None,
    search: Annotated[str | None, typer.Option("--search", help="Only lines with this text.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a job's ranks wrote."""
    with open_client() as client:
        job_id = find_job_id(client, job)
        if not follow:
            lines = client.logs(job_id, tail=tail, rank=rank, search=search)
            if as_json:
                print_json(lines)
            else:
                _print_lines(lines)
            return
        is_over = lambda: client.job(job_id).is_over  # noqa: E731 - reads best here
        for line in client.follow_logs(job_id, is_over=is_over, tail=tail, rank=rank, search=search):
            if as_json:
                print_json_line(line)
            else:
                _print_lines([line])


def _print_lines(lines: list[LogLine]) -> None:
    console = stdout()
    for line in lines:
        who = f"{clock(line.at)} {'agent' if line.rank < 0 else f'rank {line.rank}'} "
        style = "yellow" if line.stream == "stderr" else ""
        console.print(Text.assemble((who, "dim"), (clean(line.text), style)))
