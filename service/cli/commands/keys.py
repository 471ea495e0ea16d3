"""`keys create | ls | revoke`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from service.cli.connect import open_client
from service.cli.options import Json, examples
from service.cli.output import note, print_json, print_table, say
from service.cli.views.formats import ago, moment

app = typer.Typer(help="API keys of the project.", no_args_is_help=True)


@app.command("create", epilog=examples("godwit keys create ci --role operator", "godwit keys create me --role viewer"))
def create(
    name: Annotated[str, typer.Argument(help="What the key is for.")],
    role: Annotated[str, typer.Option("--role", help="viewer, operator or admin.")] = "operator",
    expires: Annotated[str | None, typer.Option("--expires", help="An instant such as 2030-01-31T00:00:00Z.")] = None,
    as_json: Json = False,
) -> None:
    """Make a key. It is shown this once."""
    with open_client() as client:
        key = client.create_key(name, role, expires)
    if as_json:
        print_json(key)
        return
    say(key.secret)
    note(f"a key for the role {key.role}; keep it: it is not shown again")


@app.command("ls", epilog=examples("godwit keys ls"))
def ls(as_json: Json = False) -> None:
    """List the keys, without their secrets."""
    with open_client() as client:
        found = client.keys()
    if as_json:
        print_json(found)
        return
    now = datetime.now(UTC)
    rows = [
        (
            key.id,
            key.name,
            key.role,
            ago(key.created_at, now),
            ago(key.last_used_at, now),
            moment(key.expires_at),
            "revoked" if key.revoked_at else "valid",
        )
        for key in found
    ]
    print_table(("ID", "NAME", "ROLE", "CREATED", "USED", "EXPIRES", "STATE"), rows)


@app.command("revoke", epilog=examples("godwit keys revoke 0123456789ab"))
def revoke(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key's id (not the key).")], as_json: Json = False
) -> None:
    """Revoke a key at once and for good."""
    with open_client() as client:
        revoked = client.revoke_key(key)
    if as_json:
        print_json(revoked)
    else:
        say(f"revoked {revoked.name} ({revoked.id})")
