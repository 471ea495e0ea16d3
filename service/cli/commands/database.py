"""`db upgrade`: for whoever runs the service. It reads the service's settings, not the command line's account."""

from __future__ import annotations

import typer

from service.cli.errors import BadInput, CliError
from service.cli.extras import need_service
from service.cli.options import Json, examples
from service.cli.output import note, print_json, say

app = typer.Typer(help="The service's database.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """The service's database."""


@app.command("upgrade", epilog=examples("GODWIT_DATABASE_URL=postgresql://… godwit db upgrade"))
def upgrade(as_json: Json = False) -> None:
    """Bring the database to the newest schema. Safe to repeat; run it before starting a newer release."""
    with need_service():
        from service.supervisor.database import DatabaseFailed, upgrade_database
        from service.supervisor.settings import SettingsInvalid
    note("upgrading …")
    try:
        revision = upgrade_database()
    except SettingsInvalid as error:
        raise BadInput(str(error), remedy="correct the environment variable") from error
    except DatabaseFailed as error:
        raise CliError(str(error), remedy="check GODWIT_DATABASE_URL and the database's own log") from error
    if as_json:
        print_json({"revision": revision})
    else:
        say(f"the database is at {revision}")
