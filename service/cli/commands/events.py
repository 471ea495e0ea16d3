"""`events`."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.connect import find_job_id, open_client
from service.cli.options import Json, Limit, examples
from service.cli.output import print_json, print_json_line, stdout
from service.cli.views.events import event_line
from service.client.models import Event


def register(app: typer.Typer) -> None:
    app.command(
        "events", epilog=examples("godwit events my-job", "godwit events -f", "godwit events my-job -f --json")
    )(events)


def events(
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="A job; none: the whole project.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens next.")] = False,
    limit: Limit = 100,
    as_json: Json = False,
) -> None:
    """Show what happened, oldest first. With -f a job's events go on until it ends, the project's until Ctrl-C."""
    with open_client() as client:
        job_id = find_job_id(client, job) if job else None
        seen = client.events(job_id)
        if not follow:
            _print(seen[-limit:], as_json)
            return
        for event in seen[-limit:]:
            _print_one(event, as_json)
        is_over = (lambda: client.job(job_id).is_over) if job_id else (lambda: False)
        after = str(seen[-1].id) if seen else "0"
        for event in client.follow_events(job_id, is_over=is_over, after=after):
            _print_one(event, as_json)


def _print(found: list[Event], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    for event in found:
        _print_one(event, False)


def _print_one(event: Event, as_json: bool) -> None:
    if as_json:
        print_json_line(event)
    else:
        stdout().print(event_line(event))
