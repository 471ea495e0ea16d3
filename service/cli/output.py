"""Standard output for results, standard error for everything said on the way."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from service.client.errors import FieldError

_PLAIN_WIDTH = 200
"""Of a table that is not on a terminal: rows must not wrap for those who grep."""

Cell = str | Text | int | None


def stdout() -> Console:
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    return console if console.is_terminal else Console(highlight=False, markup=False, emoji=False, width=_PLAIN_WIDTH)


def stderr() -> Console:
    return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)


def print_json(value: object) -> None:
    sys.stdout.write(json.dumps(to_plain(value), indent=2, ensure_ascii=False) + "\n")


def print_json_line(value: object) -> None:
    """One object a line, flushed: for streams."""
    sys.stdout.write(json.dumps(to_plain(value), ensure_ascii=False) + "\n")
    sys.stdout.flush()


def to_plain(value: object) -> Any:
    """Models as the API sent them, and lists of them."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def say(text: str | Text) -> None:
    """A result for people."""
    stdout().print(text if isinstance(text, Text) else Text(clean(text)))


def note(text: str | Text) -> None:
    """Progress and advice."""
    stderr().print(text if isinstance(text, Text) else Text(clean(text), style="dim"))


def make_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, right: Iterable[str] = ()) -> Table:
    """`right` names the columns of figures."""
    numbers = set(right)
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left", no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(_show(cell)) for cell in row))
    return table


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, right: Iterable[str] = ()) -> None:
    stdout().print(make_table(columns, rows, right=right))


def clean(text: str) -> str:
    """What others wrote must not drive the terminal: control characters are shown as a mark."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def _show(cell: Cell) -> str:
    return "-" if cell is None else clean(str(cell))


def print_json_error(code: str, message: str, remedy: str | None, errors: Sequence[FieldError]) -> None:
    """On standard error: standard output holds results alone."""
    fields = [error.model_dump(exclude_none=True) for error in errors]
    body = {"error": {"code": code, "message": message, "remedy": remedy, "errors": fields}}
    sys.stderr.write(json.dumps(body, ensure_ascii=False) + "\n")
