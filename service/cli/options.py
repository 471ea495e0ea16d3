"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
JobRef = Annotated[str, typer.Argument(metavar="JOB", help="A job's id, or its name (the newest of that name).")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Show no more than this many.")]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", file_okay=False, help="The service's folder (default: GODWIT_DATA_DIR or ~/.godwit)."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="FIELD=VALUE", help="Override one field, such as train.steps=300. Repeatable."),
]


def examples(*lines: str) -> str:
    """The end of a command's help."""
    return "Examples:\n\n" + "\n\n".join(f"  {line}" for line in lines)
