"""Recorded spot capacity, read from files.

CSV with a header: `seconds,zone,instances` and, where wanted, `instance_type` (empty: every type) and `has_notice` (of a
loss at that instant: true, false, or empty for a draw). Each row holds until the zone's next one; before its first row a
zone has what that row says.

`.npz`: an array `index` of UTF-8 JSON, `[{name, set, zone, gap_seconds, samples, …}]`, and one array a name: instances
available at sample i. The series of one set are given to the market's zones in order, again from the first when short.
"""

from __future__ import annotations

import csv
import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

MAX_TRACE_BYTES = 64 * 2**20
MAX_INSTANCES = 100_000


@dataclass(frozen=True, kw_only=True)
class Trace:
    """Instances from `seconds[i]` on; `has_notice[i]` of a loss there. `ends_seconds` is the period when it repeats."""

    seconds: Sequence[float]
    instances: Sequence[int]
    has_notice: Sequence[bool | None]
    ends_seconds: float

    def index_at(self, market_seconds: float, *, is_repeating: bool) -> int:
        if is_repeating and self.ends_seconds > 0:
            market_seconds %= self.ends_seconds
        return max(0, bisect_right(self.seconds, market_seconds) - 1)


TraceKey = tuple[str, str | None]
"""(zone, instance type or None for every type)."""


def read_traces(name_or_path: str, zones: Sequence[str], series_set: str | None = None) -> dict[TraceKey, Trace]:
    """The traces of these zones. Errors: ValueError for a file that is missing, malformed, too large or lacks a zone."""
    path = _find(name_or_path)
    try:
        traces = _read_npz(path, zones, series_set) if path.suffix == ".npz" else _read_csv(path)
    except (OSError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"trace file {path.name} cannot be read: {error!r}") from error
    known = {zone for zone, _ in traces}
    if missing := [zone for zone in zones if zone not in known]:
        raise ValueError(f"trace file {path.name} has no rows for {', '.join(missing)}")
    return traces


def _find(name_or_path: str) -> Path:
    shipped = Path(str(resources.files("worker.provision.local") / "traces" / Path(name_or_path).name))
    path = shipped if "/" not in name_or_path and shipped.is_file() else Path(name_or_path)
    if not path.is_file():
        raise ValueError(f"no trace file {name_or_path!r}")
    if path.stat().st_size > MAX_TRACE_BYTES:
        raise ValueError(f"trace file {path.name} is larger than {MAX_TRACE_BYTES} bytes")
    return path


def _read_csv(path: Path) -> dict[TraceKey, Trace]:
    rows: dict[TraceKey, list[tuple[float, int, bool | None]]] = defaultdict(list)
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = (row["zone"].strip(), (row.get("instance_type") or "").strip() or None)
            rows[key].append((float(row["seconds"]), int(row["instances"]), _read_bool(row.get("has_notice"))))
    if not rows:
        raise ValueError(f"trace file {path.name} has no rows")
    last = max(seconds for points in rows.values() for seconds, _, _ in points)
    return {key: _make_trace(sorted(points, key=lambda point: point[0]), last) for key, points in rows.items()}


def _read_bool(text: str | None) -> bool | None:
    words = {"": None, "true": True, "false": False}
    word = (text or "").strip().lower()
    if word not in words:
        raise ValueError(f"has_notice is true, false or empty, not {text!r}")
    return words[word]


def _make_trace(points: Iterable[tuple[float, int, bool | None]], ends_seconds: float) -> Trace:
    seconds, instances, has_notice = zip(*points, strict=True)
    if not all(0 <= second < 10**10 for second in seconds) or not all(0 <= n <= MAX_INSTANCES for n in instances):
        raise ValueError("seconds and instances of a trace are never negative, and bounded")
    return Trace(seconds=seconds, instances=instances, has_notice=has_notice, ends_seconds=ends_seconds)


def _read_npz(path: Path, zones: Sequence[str], series_set: str | None) -> dict[TraceKey, Trace]:
    import numpy as np  # only this format needs it

    with np.load(path, allow_pickle=False) as file:
        index = json.loads(bytes(file["index"]))
        chosen = [entry for entry in index if series_set in (None, entry["set"])]
        if not chosen:
            raise ValueError(f"trace file {path.name} has no set {series_set!r}")
        series = [(float(entry["gap_seconds"]), [int(n) for n in file[entry["name"]]]) for entry in chosen]
    return {(zone, None): _sampled_trace(*series[i % len(series)]) for i, zone in enumerate(zones)}


def _sampled_trace(gap_seconds: float, samples: Sequence[int]) -> Trace:
    points = ((i * gap_seconds, n, None) for i, n in enumerate(samples))
    return _make_trace(points, len(samples) * gap_seconds)
