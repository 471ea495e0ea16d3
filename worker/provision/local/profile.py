"""A market profile: everything that makes one simulated market, as a JSON file.

Times of the market (`*_seconds` of traces, price steps and spikes) run `time_scale` times as fast as the clock. Times of
clusters (boot, notice, shocks, memory) are real seconds.
"""

from __future__ import annotations

from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from training.protocol.base import Name, Text, Usd, Value

_Seconds = Annotated[float, Field(ge=0, le=10**8)]
_Duration = Annotated[float, Field(gt=0, le=10**8)]


class Zone(Value):
    """A zone. The two figures shape its drawn traces: means of 0.7-10.4 hours and 17-91 % are what real zones show."""

    name: Name
    region: Name
    mean_up_hours: float = Field(default=2.6, gt=0, le=1000)
    availability: float = Field(default=0.8, gt=0, lt=1)


class Shape(Value):
    """An instance type; every zone has it in both markets."""

    instance_type: Name
    accelerators: Annotated[Text, Field(max_length=64)] | None = None
    num_cpus: int = Field(ge=1, le=4096)
    memory_gib: float = Field(gt=0, le=100_000)
    on_demand_hourly_usd: Usd


class Spike(Value):
    """A time when a zone's spot prices are multiplied; `every_seconds` repeats it."""

    zone: Name
    starts_seconds: _Seconds
    lasts_seconds: _Duration
    factor: float = Field(gt=0, le=10)
    every_seconds: _Duration | None = None

    def is_on(self, market_seconds: float) -> bool:
        since = market_seconds - self.starts_seconds
        if since < 0:
            return False
        return (since if self.every_seconds is None else since % self.every_seconds) < self.lasts_seconds


class Shock(Value):
    """A loss that waits for its victim: the first spot cluster (in `zone`, or in any) to have been up so long.

    A profile's shocks are used up in order, each once. Afterwards the offer takes no new launch for `closes_for_seconds`.
    """

    after_up_seconds: _Seconds
    has_notice: bool
    zone: Name | None = None
    closes_for_seconds: _Seconds = 0


class Steady(Value):
    """The same spot capacity always."""

    kind: Literal["steady"] = "steady"
    instances: int = Field(default=100, ge=0, le=100_000)


class Drawn(Value):
    """Spot capacity in heavy-tailed up-runs and down-runs, by each zone's figures and the seed."""

    kind: Literal["drawn"] = "drawn"
    max_instances: int = Field(default=8, ge=1, le=100_000)


class Traced(Value):
    """Spot capacity from a file: a CSV, or an `.npz` of series (see traces.py). A shipped name or a path."""

    kind: Literal["traced"] = "traced"
    file: Annotated[Text, Field(max_length=1024)]
    series_set: Annotated[Text, Field(max_length=128)] | None = Field(default=None, description="of an .npz: which set")
    is_repeating: bool = False


class Profile(Value):
    name: Name
    zones: tuple[Zone, ...] = Field(min_length=1, max_length=64)
    shapes: tuple[Shape, ...] = Field(min_length=1, max_length=64)
    supply: Annotated[Steady | Drawn | Traced, Field(discriminator="kind")] = Drawn()
    on_demand_instances: int = Field(default=100, ge=0, le=100_000, description="a zone's, of each instance type")
    max_nodes: int = Field(default=64, ge=1, le=1000, description="the most nodes of one cluster")
    price_step_seconds: _Duration = 300
    spot_lowest: float = Field(default=0.25, gt=0, le=1, description="of the on-demand price")
    spot_highest: float = Field(default=0.55, gt=0, le=1)
    spikes: tuple[Spike, ...] = Field(default=(), max_length=64)
    shocks: tuple[Shock, ...] = Field(default=(), max_length=64)
    notice_share: float = Field(default=0.9, ge=0, le=1, description="of losses of capacity that are told beforehand")
    notice_seconds: _Seconds = 120
    boot_seconds: _Seconds = 0.5
    remember_seconds: _Seconds = Field(default=600, description="how long an ended cluster is still known")
    time_scale: float = Field(default=1, gt=0, le=100_000)
    metadata: Literal["aws", "gce", "azure"] = "aws"

    @model_validator(mode="after")
    def _check(self) -> Profile:
        names = [zone.name for zone in self.zones]
        if len(set(names)) < len(names) or len({shape.instance_type for shape in self.shapes}) < len(self.shapes):
            raise ValueError("zones and instance types have each their own name")
        if self.spot_lowest > self.spot_highest:
            raise ValueError("spot_lowest is above spot_highest")
        if unknown := {it.zone for it in (*self.spikes, *self.shocks) if it.zone} - set(names):
            raise ValueError(f"unknown zones: {sorted(unknown)}")
        return self


def read_profile(name_or_path: str, *, time_scale: float | None = None) -> Profile:
    """A shipped profile by its name, or a JSON file by its path. Errors: ValueError that says what is wrong with it."""
    shipped = resources.files("worker.provision.local") / "profiles" / f"{Path(name_or_path).name}.json"
    if "/" not in name_or_path and shipped.is_file():
        text = shipped.read_text()
    else:
        try:
            text = Path(name_or_path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"no market profile {name_or_path!r}: it is neither a shipped name nor a file") from error
    profile = Profile.model_validate_json(text)
    return profile if time_scale is None else Profile.model_validate({**profile.model_dump(), "time_scale": time_scale})


def to_hourly_nano(usd: Decimal) -> int:
    return int(usd * 1_000_000_000)
