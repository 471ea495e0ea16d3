"""What the pages for people name exists: files, commands, options, make targets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from service.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.yaml")],
    key=lambda path: path.relative_to(ROOT).as_posix(),
)
_BY_NAME = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())


@_BY_NAME
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (path.parent / target).exists()] == []


@_BY_NAME
def test_commands_and_their_options_exist(path: Path) -> None:
    assert [line for line in _list_commands(path.read_text(encoding="utf-8")) if not _is_known(line)] == []


@_BY_NAME
def test_make_targets_exist(path: Path) -> None:
    known = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = re.findall(r"^make ([a-z]+)|`make ([a-z]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert {first or second for first, second in named} <= known


def _list_commands(text: str) -> Iterator[str]:
    """What stands alone on a line of code, or between backticks."""
    for found in re.findall(r"^(?:#\s+)?(godwit [^#\n]+)|`(godwit [^`]+)`", text, re.MULTILINE):
        yield (found[0] or found[1]).strip()


def _is_known(line: str) -> bool:
    command: Any = typer.main.get_command(app)
    words = shlex.split(line.split(" < ")[0])[1:]
    while words and hasattr(command, "commands"):
        if (command := command.commands.get(words.pop(0))) is None:
            return False
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    used = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    return used <= options | {"--help", "-h"}
