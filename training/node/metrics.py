"""The ranks' metrics: tails the file of JSON lines and turns each into a point."""

from __future__ import annotations

import json
import math
import re
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from training.protocol.messages import MAX_METRIC_POINTS, MAX_METRICS_A_POINT, MetricPoint

MAX_LINE_BYTES = 64 * 1024
MAX_READ_BYTES = 1024 * 1024
MAX_WAITING_POINTS = 5000
MAX_NAME_CHARACTERS = 128
MAX_STEP = 10**12


def metric_name(raw: str) -> str | None:
    """The nearest allowed name: `Loss/Train (mean)` is `loss/train_mean_`. None when nothing is left of it."""
    parts = [re.sub(r"[^a-z0-9_@.]", "_", part) for part in raw.lower().split("/") if part]
    if not parts:
        return None
    parts[0] = re.sub(r"[@.]", "_", parts[0])
    return "/".join(parts)[:MAX_NAME_CHARACTERS].rstrip("/")


def parse_metrics(line: bytes, at: datetime) -> MetricPoint:
    """One line's point; values that are no finite numbers are left out. Errors: ValueError, saying what is wrong."""
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - the value is wrong, not the call
    step = record.pop("step", None)
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= MAX_STEP:
        raise ValueError("'step' is not a step number")
    values: dict[str, float] = {}
    for raw, value in record.items():
        name = metric_name(raw)
        if name is None or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if len(values) < MAX_METRICS_A_POINT and _is_finite(value):
            values[name] = float(value)
    return MetricPoint(step=step, at=at, values=values)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


class MetricsTail:
    """Reads new whole lines of a growing file and keeps their points until a heartbeat delivers them."""

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn
        self._offset = 0
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._waiting: deque[MetricPoint] = deque(maxlen=MAX_WAITING_POINTS)
        self._host_values: dict[str, float] = {}
        self._bad_lines = 0

    def poll(self, at: datetime) -> int | None:
        """Take in what was written since; the last point's step, if there is a new one."""
        last = None
        with self._reading:
            lines = self._new_lines()
        for line in lines:
            try:
                point = parse_metrics(line, at)
            except (ValueError, RecursionError) as error:
                self._note_bad_line(error)
                continue
            last = point.step
            with self._lock:
                self._waiting.append(self._with_host_values(point))
        return last

    def add_host_values(self, values: dict[str, float]) -> None:
        """Samples of the machine ride on the next point: they have no step of their own."""
        with self._lock:
            self._host_values |= values

    def take(self) -> tuple[MetricPoint, ...]:
        with self._lock:
            return tuple(self._waiting.popleft() for _ in range(min(len(self._waiting), MAX_METRIC_POINTS)))

    def give_back(self, points: tuple[MetricPoint, ...]) -> None:
        with self._lock:
            self._waiting.extendleft(reversed(points[max(0, len(points) + len(self._waiting) - MAX_WAITING_POINTS) :]))

    @property
    def has_waiting(self) -> bool:
        with self._lock:
            return bool(self._waiting)

    def _with_host_values(self, point: MetricPoint) -> MetricPoint:
        if not self._host_values or len(point.values) + len(self._host_values) > MAX_METRICS_A_POINT:
            return point
        merged = point.model_copy(update={"values": point.values | self._host_values})
        self._host_values = {}
        return merged

    def _new_lines(self) -> list[bytes]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(MAX_READ_BYTES)
        except OSError:
            return []
        end = data.rfind(b"\n") + 1
        if end == 0 and len(data) >= MAX_LINE_BYTES:
            end = len(data)  # a line without end: it is refused below, piece by piece
        self._offset += end
        return [line for line in data[:end].splitlines() if line.strip()]

    def _note_bad_line(self, error: Exception) -> None:
        self._bad_lines += 1
        if self._bad_lines in (1, 10, 100, 1000):
            self._warn(f"metrics: {self._bad_lines} lines ignored; the last: {str(error)[:200]}")
