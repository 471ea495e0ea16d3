"""cli.md: every command's help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from docs.generator.markdown import code, fenced, page, table
from service.cli.main import app

_COMPLETION = ("install_completion", "show_completion")
_WORDS = {"str": "TEXT", "list": "TEXT", "int": "NUMBER", "float": "NUMBER", "dir": "FOLDER", "file": "FILE"}
_TEXT = """\
`--json` prints JSON on standard output, errors included; `-h` prints a command's help. A job is named by its id or by its
name (the newest of that name)."""


def write_cli() -> str:
    root: Any = typer.main.get_command(app)
    blocks = [block for name, command in _list_commands(root, "godwit") for block in _describe(name, command)]
    return page("Command line", _TEXT, *(root.epilog or "").split("\n\n"), *blocks)


def _list_commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Groups are passed through: their commands say all."""
    for part, inner in command.commands.items():
        full = f"{name} {part}"
        if hasattr(inner, "commands"):
            yield from _list_commands(inner, full)
        else:
            yield full, inner


def _describe(name: str, command: Any) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    records = [
        parameter.get_help_record(context)
        for parameter in command.params
        if parameter.name not in (*_COMPLETION, "help")
    ]
    rows = [(code(_plain(left)), right) for left, right in (record for record in records if record is not None)]
    yield f"## {name}"
    yield command.help or ""
    yield table(("argument or option", "meaning"), rows) if rows else ""
    yield _examples(command.epilog or "")


def _plain(left: str) -> str:
    """`JOB <str>` is `JOB`, and `--port <int range>` is `--port NUMBER`."""
    if not left.startswith("-"):
        return left.split(" <")[0]
    return re.sub(r"<(\w+)[^>]*>", lambda found: _WORDS[found[1]], left)


def _examples(epilog: str) -> str:
    lines = [line.strip() for line in epilog.removeprefix("Examples:").splitlines() if line.strip()]
    return fenced("\n".join(lines)) if lines else ""
