"""Log files with a bound. Children write them directly (append mode), so that they outlive the supervisor."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import IO

MAX_LOG_BYTES = 10 * 1024 * 1024


def open_log(path: Path) -> IO[bytes]:
    return path.open("ab")


def rotate_log(path: Path, max_bytes: int = MAX_LOG_BYTES) -> bool:
    """Copy to `.1` and truncate in place: writers in append mode go on at the new end. A line may be lost between."""
    try:
        if path.stat().st_size <= max_bytes:
            return False
        shutil.copyfile(path, path.with_name(path.name + ".1"))
        with path.open("r+b") as file:
            file.truncate(0)
    except OSError:
        return False
    return True


def tail(path: Path, num_lines: int = 15, max_bytes: int = 8192) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - max_bytes))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-num_lines:])
    except OSError:
        return ""
