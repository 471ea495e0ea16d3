"""`submit`."""

from __future__ import annotations

import getpass
import os
import sys
from typing import Annotated

import typer

from service.cli.connect import open_client
from service.cli.errors import BadInput
from service.cli.options import Json, SetOption, examples
from service.cli.output import note, print_json, print_table, say
from service.cli.spec.build import DraftSpec, SpecOptions, draft_spec, to_body, with_bundle
from service.cli.spec.bundle import build_bundle
from service.cli.views.formats import hourly, size, usd
from service.cli.views.watch import watch_job
from service.client.api import Godwit
from service.client.models import DryRun
from training.protocol.job_spec import JobSpec


def register(app: typer.Typer) -> None:
    app.command(
        "submit",
        epilog=examples(
            "godwit submit job.yaml --budget 3.00",
            "godwit submit job.yaml --set train.steps=300 --watch",
            "HF_TOKEN=… godwit submit job.yaml --secret HF_TOKEN",
            "godwit submit job.yaml --dry-run",
        ),
    )(submit)


def submit(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help="A job spec in YAML; - reads standard input.")],
    budget: Annotated[str | None, typer.Option("--budget", metavar="USD", help="The job's own cap.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="The job's name, in place of the spec's.")] = None,
    overrides: SetOption = None,
    secret: Annotated[
        list[str] | None,
        typer.Option(
            "--secret", metavar="NAME", help="A secret variable, from the environment or asked for. Repeatable."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen; submit nothing.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep showing the job until it ends.")] = False,
    as_json: Json = False,
) -> None:
    """Submit a job. With --watch the exit code is 1 if the job does not succeed."""
    options = SpecOptions(
        name=name, budget_usd=budget, overrides=tuple(overrides or ()), secret_names=tuple(secret or ())
    )
    draft = draft_spec(spec, options, _read_secret)
    with open_client() as client:
        checked = _upload(client, draft)
        if dry_run:
            _show_dry_run(client.dry_run(to_body(checked)), as_json)
            return
        job = client.submit(to_body(checked))
        if as_json:
            print_json(job)
            return
        say(job.id)
        note(f"submitted {job.name}; see it with 'godwit show {job.id} --watch'")
        if watch:
            raise typer.Exit(0 if watch_job(client, job.id).status == "succeeded" else 1)


def _upload(client: Godwit, draft: DraftSpec) -> JobSpec:
    if draft.folder is None:
        return draft.spec
    bundle = build_bundle(draft.folder)
    note(f"uploading {bundle.num_files} files of {draft.folder} ({size(len(bundle.content))}) …")
    return with_bundle(draft.spec, client.upload_bundle(bundle.content).digest)


def _read_secret(name: str) -> str:
    """Errors: BadInput when it is in no environment and there is nobody to ask."""
    value = os.environ.get(name)
    if value is None and sys.stdin.isatty():
        value = getpass.getpass(f"{name}: ")
    if not value:
        raise BadInput(f"secrets.{name}: no value", remedy=f"set {name} in the environment, or run in a terminal")
    return value


def _show_dry_run(result: DryRun, as_json: bool) -> None:
    if as_json:
        print_json(result)
        return
    say("would start now" if result.is_admissible else "would not start now:")
    for reason in result.reasons:
        say(f"  {reason}")
    say(f"sets aside {usd(result.admission_usd)} of {usd(result.available_usd)} available")
    rows = [(offer.id, hourly(offer.hourly_usd), "yes" if offer.is_available else "no") for offer in result.offers]
    print_table(("OFFER", "PRICE", "AVAILABLE"), rows, right=("PRICE",))
