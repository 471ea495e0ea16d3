"""Markdown's few forms that the pages use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NOTE = "<!-- Written by `make docs` from the code; do not edit. -->"


def page(title: str, *blocks: str) -> str:
    return "\n\n".join((f"# {title}", NOTE, *(block for block in blocks if block))) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns that are empty in every row are left out."""
    found = [tuple(row) for row in rows]
    kept = [place for place, _ in enumerate(columns) if any(row[place] for row in found)]
    lines = [[columns[place] for place in kept], ["---"] * len(kept)]
    lines += [[_cell(row[place]) for place in kept] for row in found]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


def fenced(text: str, language: str = "") -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
