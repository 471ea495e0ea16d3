"""Offers and quotes: what can be rented where, and at what price at an instant."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Market(StrEnum):
    SPOT = "spot"
    ON_DEMAND = "on-demand"


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """A kind of machine in one place and market. Memory in GiB, `accelerators` as `H100:8` or None."""

    provider: str
    region: str
    zone: str
    instance_type: str
    market: Market
    accelerators: str | None
    num_cpus: int
    memory_gib: float
    on_demand_hourly_nano: int
    """List price a node and hour in nano-dollars: the default ceiling of what a spot node may cost."""

    @property
    def id(self) -> str:
        """`provider/zone/instance_type/market`, stable across restarts."""
        return f"{self.provider}/{self.zone}/{self.instance_type}/{self.market}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Quote:
    """An offer's price a node and hour from `at` on, until the next quote."""

    offer_id: str
    at: datetime
    hourly_nano: int
    source: str
