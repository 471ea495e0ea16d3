"""`login`, `whoami`, `version`."""

from __future__ import annotations

import getpass
import os
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from service.cli.config import Account, check_key, check_url, save_account
from service.cli.connect import open_client
from service.cli.options import Json, examples
from service.cli.output import note, print_json, say
from service.client.transport import is_loopback

_MAX_KEY_CHARACTERS = 1024


def register(app: typer.Typer) -> None:
    app.command("login", epilog=examples("godwit login https://godwit.example.com", "godwit login URL < key.txt"))(
        login
    )
    app.command("whoami", epilog=examples("godwit whoami"))(whoami)
    app.command("version", epilog=examples("godwit version --json"))(show_version)


def login(url: Annotated[str, typer.Argument(help="Where the service is.")], as_json: Json = False) -> None:
    """Sign in to a service. The key is asked for, or read from standard input; it is never an argument."""
    url = check_url(url)
    if url.startswith("http://") and not is_loopback(url):
        note("warning: http is not encrypted; the key can be read on the way")
    key = check_key(_read_key())
    account = Account(url=url, key=key)
    with open_client(account) as client:
        me = client.me()
    path = save_account(account, os.environ)
    if as_json:
        print_json({"url": url, "project": me.project_name, "role": me.role, "config": str(path)})
        return
    say(f"Signed in to {url} as {me.role} of the project {me.project_name}. Saved in {path}.")


def whoami(as_json: Json = False) -> None:
    """Show the service, the project and the role of the key in use."""
    with open_client() as client:
        me = client.me()
        if as_json:
            print_json({"url": client.url, **me.model_dump(mode="json")})
        else:
            say(f"{me.role} of the project {me.project_name} at {client.url} (key {me.key_id})")


def show_version(as_json: Json = False) -> None:
    """Show the version."""
    try:
        number = version("godwit")
    except PackageNotFoundError:
        number = "unknown"
    if as_json:
        print_json({"version": number})
    else:
        say(f"godwit {number}")


def _read_key() -> str:
    if sys.stdin.isatty():
        return getpass.getpass("API key: ").strip()
    return sys.stdin.readline(_MAX_KEY_CHARACTERS).strip()
