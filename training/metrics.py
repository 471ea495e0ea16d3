"""Metrics as JSON lines, one object a line, flushed; written by rank 0 alone."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path


class MetricsWriter:
    """Appends to `path`. A value that is not finite is written as null, since JSON has no word for it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = path.open("a", encoding="utf-8", buffering=1)

    def write(self, step: int, *, time: float, values: Mapping[str, float | None]) -> None:
        """One line. `time` is in seconds since the epoch."""
        line = {"step": step, "time": round(time, 3)}
        line |= {name: value if value is None or math.isfinite(value) else None for name, value in values.items()}
        self._stream.write(json.dumps(line, allow_nan=False) + "\n")

    def close(self) -> None:
        self._stream.close()
