"""How many spot instances a zone has, at any instant of the market's time.

Three supplies with one verb: steady, from a trace file, or drawn from the hazard figures. All are functions of
(seed, instant) alone, so that a restarted daemon meets the same market.
"""

from __future__ import annotations

import random
import threading
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from worker.provision.local.hazards import RunScales, draw_run_hours, scales_for
from worker.provision.local.profile import Drawn, Profile, Traced
from worker.provision.local.traces import Trace, TraceKey, read_traces


@dataclass(frozen=True, kw_only=True)
class Stock:
    """Instances that a pool (zone, instance type) can run now. `has_notice`: of a loss to this level, or None: drawn."""

    instances: int
    has_notice: bool | None = None


class Supply(Protocol):
    def stock(self, zone: str, instance_type: str, market_seconds: float) -> Stock: ...


@dataclass(frozen=True, kw_only=True)
class SteadySupply:
    instances: int

    def stock(self, zone: str, instance_type: str, market_seconds: float) -> Stock:  # noqa: ARG002 - the same anywhere
        return Stock(instances=self.instances)


@dataclass(frozen=True, kw_only=True)
class TracedSupply:
    """Capacity by a trace file; an instance type without rows of its own follows its zone's."""

    traces: Mapping[TraceKey, Trace]
    is_repeating: bool

    def stock(self, zone: str, instance_type: str, market_seconds: float) -> Stock:
        trace = self.traces.get((zone, instance_type)) or self.traces.get((zone, None))
        if trace is None:
            return Stock(instances=0)
        i = trace.index_at(market_seconds, is_repeating=self.is_repeating)
        return Stock(instances=trace.instances[i], has_notice=trace.has_notice[i])


class RunSequence:
    """One pool's up-runs and down-runs, drawn from the market's start as far as anyone has asked."""

    def __init__(self, seed: str, scales: RunScales, availability: float, max_instances: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a simulation
        self._scales = scales
        self._max_instances = max_instances
        self._is_next_up = self._random.random() < availability
        self._starts: list[float] = []
        self._instances: list[int] = []
        self._end = 0.0
        self._lock = threading.Lock()

    def instances_at(self, market_seconds: float) -> int:
        with self._lock:
            while self._end <= market_seconds:
                self._draw_run()
            return self._instances[max(0, bisect_right(self._starts, market_seconds) - 1)]

    def _draw_run(self) -> None:
        scale = self._scales.up if self._is_next_up else self._scales.down
        self._starts.append(self._end)
        self._instances.append(self._random.randint(1, self._max_instances) if self._is_next_up else 0)
        self._end += 3600 * draw_run_hours(self._random.random(), scale)
        self._is_next_up = not self._is_next_up


@dataclass(frozen=True, kw_only=True)
class DrawnSupply:
    sequences: Mapping[tuple[str, str], RunSequence]

    def stock(self, zone: str, instance_type: str, market_seconds: float) -> Stock:
        return Stock(instances=self.sequences[zone, instance_type].instances_at(max(0.0, market_seconds)))


def make_supply(profile: Profile, seed: int) -> Supply:
    """The profile's supply. Errors: ValueError for a trace file that does not fit the profile."""
    source = profile.supply
    if isinstance(source, Traced):
        zones: Sequence[str] = [zone.name for zone in profile.zones]
        traces = read_traces(source.file, zones, source.series_set)
        return TracedSupply(traces=traces, is_repeating=source.is_repeating)
    if isinstance(source, Drawn):
        return DrawnSupply(sequences=_draw_sequences(profile, source, seed))
    return SteadySupply(instances=source.instances)


def _draw_sequences(profile: Profile, source: Drawn, seed: int) -> dict[tuple[str, str], RunSequence]:
    return {
        (zone.name, shape.instance_type): RunSequence(
            f"{seed}/{zone.name}/{shape.instance_type}",
            scales_for(zone.mean_up_hours, zone.availability),
            zone.availability,
            source.max_instances,
        )
        for zone in profile.zones
        for shape in profile.shapes
    }
