"""`drill`: a preemption on purpose, and what it took."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from service.cli.connect import find_job_id, open_client
from service.cli.errors import CliError
from service.cli.options import JobRef, Json, examples
from service.cli.output import note, print_json, print_table
from service.cli.views.formats import seconds
from service.client.api import Godwit
from service.client.models import Drill

_POLL_SECONDS = 0.5


def register(app: typer.Typer) -> None:
    app.command("drill", epilog=examples("godwit drill my-job", "godwit drill my-job --no-notice"))(drill)


def drill(
    job: JobRef,
    notice: Annotated[
        bool, typer.Option("--notice/--no-notice", help="Whether an interruption notice comes first.")
    ] = True,
    node_rank: Annotated[int, typer.Option("--node", min=0, help="Which node of the gang.")] = 0,
    timeout_seconds: Annotated[
        float, typer.Option("--timeout", min=1, help="Give up waiting after so many seconds.")
    ] = 300,
    as_json: Json = False,
) -> None:
    """Take a node away from a running job and report how it came back."""
    with open_client() as client:
        job_id = find_job_id(client, job)
        started = client.start_drill(job_id, notice=notice, node_rank=node_rank)
        note(f"taking node {node_rank} away {'after a notice' if notice else 'without notice'} …")
        done = _wait(client, job_id, started, timeout_seconds)
    if as_json:
        print_json(done)
    else:
        _print(done)
    if done.state != "recovered":
        remedy = f"look again with 'godwit events {job}'"
        raise CliError(done.failure or f"the job was not back after {timeout_seconds:.0f} seconds", remedy=remedy)


def _wait(client: Godwit, job_id: str, drill: Drill, timeout_seconds: float) -> Drill:
    give_up_at = time.monotonic() + timeout_seconds
    while drill.state not in ("recovered", "failed") and time.monotonic() < give_up_at:
        time.sleep(_POLL_SECONDS)
        if (now := client.drill(job_id, drill.id)).state != drill.state:
            note(f"drill: {now.state}")
        drill = now
    return drill


def _print(drill: Drill) -> None:
    rows = [
        ("detected after", seconds(drill.detection_seconds)),
        ("relaunched after", seconds(drill.relaunch_seconds)),
        ("first new step after", seconds(drill.first_step_seconds)),
        ("at step", drill.at_step),
        ("resumed from step", drill.resumed_from_step),
        ("steps lost", drill.steps_lost),
    ]
    print_table(("DRILL", drill.state), rows, right=(drill.state,))
