"""`projects`."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.connect import open_client
from service.cli.options import Json, examples
from service.cli.output import note, print_json, print_table, say
from service.cli.views.formats import moment


def register(app: typer.Typer) -> None:
    app.command("projects", epilog=examples("godwit projects", "godwit projects --create research"))(projects)


def projects(
    create: Annotated[
        str | None, typer.Option("--create", metavar="NAME", help="Make a project and its admin key.")
    ] = None,
    allow_unbudgeted: Annotated[
        bool, typer.Option("--allow-unbudgeted", help="With --create: let jobs run that no budget covers.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the key's project, or make another."""
    with open_client() as client:
        if create is not None:
            made = client.create_project(create, allows_unbudgeted_jobs=allow_unbudgeted)
            if as_json:
                print_json(made)
                return
            say(f"{made.id}  {made.name}")
            say(made.key.secret)
            note("its admin key; keep it: it is not shown again")
            return
        found = client.projects()
    if as_json:
        print_json(found)
        return
    rows = [
        (project.id, project.name, "yes" if project.allows_unbudgeted_jobs else "no", moment(project.created_at))
        for project in found
    ]
    print_table(("ID", "NAME", "UNBUDGETED JOBS", "CREATED"), rows)
