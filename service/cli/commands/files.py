"""`outputs` and `download`."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated

import typer

from service.cli.connect import find_job_id, open_client
from service.cli.errors import BadInput, CliError
from service.cli.options import JobRef, Json, examples
from service.cli.output import print_json, print_table, say
from service.cli.views.formats import size


def register(app: typer.Typer) -> None:
    app.command("outputs", epilog=examples("godwit outputs my-job"))(outputs)
    app.command(
        "download", epilog=examples("godwit download my-job", "godwit download my-job sample.txt --to results")
    )(download)


def outputs(job: JobRef, as_json: Json = False) -> None:
    """List the files that a job left."""
    with open_client() as client:
        found = client.outputs(find_job_id(client, job))
    if as_json:
        print_json(found)
    else:
        print_table(("PATH", "SIZE"), [(file.path, size(file.size_bytes)) for file in found], right=("SIZE",))


def download(
    job: JobRef,
    paths: Annotated[list[str] | None, typer.Argument(help="Which files; none: all of them.")] = None,
    to: Annotated[Path, typer.Option("--to", file_okay=False, help="The folder to write to.")] = Path(),
    as_json: Json = False,
) -> None:
    """Download a job's outputs."""
    with open_client() as client:
        job_id = find_job_id(client, job)
        wanted = paths or [file.path for file in client.outputs(job_id)]
        targets = [_target(to, path) for path in wanted]
        for path, target in zip(wanted, targets, strict=True):
            _make_parent(target)
            client.download_output(job_id, path, target)
    if as_json:
        print_json([str(target) for target in targets])
        return
    for target in targets:
        say(str(target))


def _target(folder: Path, path: str) -> Path:
    """Below `folder`, whatever the service says the path is. Errors: BadInput."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or not path.isprintable():
        raise BadInput(f"{path[:100]!r} is not a path of an output", remedy="list them with 'godwit outputs JOB'")
    return folder.joinpath(*parts)


def _make_parent(target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CliError(f"{target.parent} cannot be made: {error.strerror}", remedy="choose another by --to") from error
