"""`pause`, `resume`, `cancel`, `retry`, `checkpoint`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from service.cli.connect import find_job_id, open_client
from service.cli.options import JobRef, Json, SetOption, examples
from service.cli.output import print_json, say
from service.cli.spec.overrides import nested
from service.client.api import Godwit
from service.client.models import Job


def register(app: typer.Typer) -> None:
    app.command("pause", epilog=examples("godwit pause my-job"))(pause)
    app.command("resume", epilog=examples("godwit resume my-job"))(resume)
    app.command("cancel", epilog=examples("godwit cancel my-job", "godwit cancel my-job --now"))(cancel)
    app.command(
        "retry", epilog=examples("godwit retry my-job", "godwit retry my-job --set resources.market=on-demand")
    )(retry)
    app.command("checkpoint", epilog=examples("godwit checkpoint my-job"))(checkpoint)


def pause(job: JobRef, as_json: Json = False) -> None:
    """Stop a job at a checkpoint and give its nodes back; 'resume' goes on from there."""
    _apply(job, lambda client, job_id: client.pause(job_id), "pauses after a checkpoint", as_json)


def resume(job: JobRef, as_json: Json = False) -> None:
    """Let a paused job go on. A job that its budget stopped needs 'godwit budget top-up' instead."""
    _apply(job, lambda client, job_id: client.resume(job_id), "goes on", as_json)


def cancel(
    job: JobRef,
    now: Annotated[bool, typer.Option("--now", help="Skip the last checkpoint.")] = False,
    as_json: Json = False,
) -> None:
    """End a job for good. Its checkpoints and outputs stay."""
    _apply(job, lambda client, job_id: client.cancel(job_id, now=now), "is being cancelled", as_json)


def retry(job: JobRef, overrides: SetOption = None, as_json: Json = False) -> None:
    """Run a failed job again from its newest verified checkpoint, with changed settings if you like."""
    patch = nested(overrides or [])
    _apply(job, lambda client, job_id: client.retry(job_id, patch), "runs again from its checkpoint", as_json)


def checkpoint(job: JobRef, as_json: Json = False) -> None:
    """Ask a running job to save now and go on."""
    _apply(job, lambda client, job_id: client.checkpoint_now(job_id), "saves now", as_json)


def _apply(job: str, wish: Callable[[Godwit, str], Job], words: str, as_json: bool) -> None:
    with open_client() as client:
        found = wish(client, find_job_id(client, job))
    if as_json:
        print_json(found)
    elif found.is_over:
        say(f"{found.name} ({found.id}) has ended: {found.status}")
    else:
        say(f"{found.name} ({found.id}) {words}; now {found.status}")
