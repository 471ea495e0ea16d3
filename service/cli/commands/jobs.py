"""`ls`, `show`, `attempts`, `checkpoints`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from service.cli.connect import find_job_id, open_client
from service.cli.errors import BadInput
from service.cli.options import JobRef, Json, Limit, examples
from service.cli.output import print_json, print_table, stdout
from service.cli.views.formats import ago, hourly, moment, seconds, size, usd
from service.cli.views.job_view import render_job, status_text, step_text
from service.cli.views.watch import watch_job
from service.domain.states import JobStatus

STATUSES = tuple(JobStatus)


def register(app: typer.Typer) -> None:
    app.command("ls", epilog=examples("godwit ls", "godwit ls --status running --json", "godwit ls --label team=nlp"))(
        ls
    )
    app.command("show", epilog=examples("godwit show my-job", "godwit show my-job --watch"))(show)
    app.command("attempts", epilog=examples("godwit attempts my-job"))(attempts)
    app.command("checkpoints", epilog=examples("godwit checkpoints my-job --json"))(checkpoints)


def ls(
    status: Annotated[
        list[str] | None, typer.Option("--status", "-s", help="Only jobs in this status. Repeatable.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Only jobs of this name.")] = None,
    label: Annotated[str | None, typer.Option("--label", help="Only jobs with this label: NAME or NAME=VALUE.")] = None,
    limit: Limit = 50,
    as_json: Json = False,
) -> None:
    """List jobs, newest first."""
    for wanted in status or ():
        if wanted not in STATUSES:
            raise BadInput(f"--status {wanted[:50]}: no such status", remedy=f"one of {', '.join(STATUSES)}")
    with open_client() as client:
        jobs = client.list_jobs(statuses=status or (), name=name, label=label, limit=limit)
    if as_json:
        print_json(jobs)
        return
    now = datetime.now(UTC)
    rows = [
        (
            job.id,
            job.name,
            status_text(job),
            step_text(job),
            f"{job.loss:.4f}" if job.loss is not None else None,
            usd(job.spent_usd),
            usd(job.budget_usd),
            job.preemption_count,
            ago(job.created_at, now),
        )
        for job in jobs
    ]
    columns = ("ID", "NAME", "STATUS", "STEP", "LOSS", "SPENT", "BUDGET", "PREEMPTIONS", "CREATED")
    print_table(columns, rows, right=("STEP", "LOSS", "SPENT", "BUDGET", "PREEMPTIONS"))


def show(
    job: JobRef,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing until the job ends.")] = False,
    as_json: Json = False,
) -> None:
    """Show a job: status, progress, place, money, error. With --watch the exit code is 1 if the job does not succeed."""
    with open_client() as client:
        job_id = find_job_id(client, job)
        if watch and not as_json:
            raise typer.Exit(0 if watch_job(client, job_id).status == "succeeded" else 1)
        found = client.job(job_id)
    if as_json:
        print_json(found)
    else:
        stdout().print(render_job(found, datetime.now(UTC)))


def attempts(job: JobRef, as_json: Json = False) -> None:
    """List a job's attempts: where each ran, for how long, at what price, and why it ended."""
    with open_client() as client:
        found = client.attempts(find_job_id(client, job))
    if as_json:
        print_json(found)
        return
    rows = [
        (
            attempt.fence,
            attempt.state,
            attempt.cause,
            attempt.offer_id,
            attempt.num_nodes,
            hourly(attempt.hourly_usd),
            seconds(attempt.seconds),
            usd(attempt.cost_usd),
            attempt.resumed_from_step,
            attempt.last_step,
        )
        for attempt in found
    ]
    columns = ("FENCE", "STATE", "CAUSE", "OFFER", "NODES", "PRICE", "TIME", "COST", "FROM STEP", "LAST STEP")
    print_table(columns, rows, right=("FENCE", "NODES", "PRICE", "TIME", "COST", "FROM STEP", "LAST STEP"))


def checkpoints(job: JobRef, as_json: Json = False) -> None:
    """List a job's registered checkpoints."""
    with open_client() as client:
        found = client.checkpoints(find_job_id(client, job))
    if as_json:
        print_json(found)
        return
    rows = [
        (
            point.step,
            point.fence,
            size(point.size_bytes),
            f"{point.val_loss:.4f}" if point.val_loss is not None else None,
            "yes" if point.verified else "CORRUPT",
            moment(point.registered_at),
        )
        for point in found
    ]
    columns = ("STEP", "FENCE", "SIZE", "VAL LOSS", "VERIFIED", "REGISTERED")
    print_table(columns, rows, right=("STEP", "FENCE", "SIZE", "VAL LOSS"))
