"""The simulated market: offers, their prices and their capacity at an instant.

Pure: everything is a function of (profile, seed, seconds since the market's start). Spot prices wander between two
bounds well below on-demand, in steps, and may spike in one zone for a while; on-demand prices never move.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from functools import cached_property

from service.domain.offers import Market as MarketKind
from service.domain.offers import Offer
from worker.provision.local.profile import Profile, Shape, Zone, to_hourly_nano
from worker.provision.local.supply import Stock, Supply, make_supply

PROVIDER = "local"
_STEPS_A_LEVEL = 6
_JITTER = 0.2
_TICK_NANO = 100_000
"""Prices are multiples of $0.0001, as the clouds quote them."""


def draw_uniform(*parts: object) -> float:
    """A number in [0, 1) that is a function of the parts alone, on every platform."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


@dataclass(frozen=True)
class Market:
    """One market. Arguments named `market_seconds` count from its start, in its own time."""

    profile: Profile
    seed: int
    supply: Supply = field(repr=False)

    @cached_property
    def offers(self) -> dict[str, Offer]:
        """Every offer by its id: each zone has each instance type in both markets."""
        offers = [
            _make_offer(zone, shape, kind)
            for zone in self.profile.zones
            for shape in self.profile.shapes
            for kind in MarketKind
        ]
        return {offer.id: offer for offer in offers}

    def step_start(self, market_seconds: float) -> float:
        """When the price that holds now began to."""
        step = self.profile.price_step_seconds
        return math.floor(max(0.0, market_seconds) / step) * step

    def price(self, offer: Offer, market_seconds: float) -> int:
        """Nano-dollars a node and hour: positive, constant within a price step."""
        if offer.market is MarketKind.ON_DEMAND:
            return offer.on_demand_hourly_nano
        start = self.step_start(market_seconds)
        fraction = self._spot_fraction(offer, round(start / self.profile.price_step_seconds))
        for spike in self.profile.spikes:
            if spike.zone == offer.zone and spike.is_on(start):
                fraction *= spike.factor
        return max(1, round(offer.on_demand_hourly_nano * fraction / _TICK_NANO)) * _TICK_NANO

    def stock(self, offer: Offer, market_seconds: float) -> Stock:
        """What the offer's pool can run in all, what runs already included."""
        if offer.market is MarketKind.ON_DEMAND:
            return Stock(instances=self.profile.on_demand_instances)
        return self.supply.stock(offer.zone, offer.instance_type, market_seconds)

    def is_loss_noticed(self, offer: Offer, cluster_name: str, stock: Stock) -> bool:
        """Whether a loss of capacity is told beforehand: as the trace says, else drawn once for the cluster."""
        if stock.has_notice is not None:
            return stock.has_notice
        return draw_uniform(self.seed, "notice", offer.id, cluster_name) < self.profile.notice_share

    def _spot_fraction(self, offer: Offer, step: int) -> float:
        """Of the on-demand price: levels drawn every few steps with straight lines between them, and a little jitter."""
        level, within = divmod(step, _STEPS_A_LEVEL)
        before, after = (draw_uniform(self.seed, "level", offer.id, i) for i in (level, level + 1))
        position = before + (after - before) * within / _STEPS_A_LEVEL
        position += _JITTER * (draw_uniform(self.seed, "jitter", offer.id, step) - 0.5)
        lowest, highest = self.profile.spot_lowest, self.profile.spot_highest
        return lowest + (highest - lowest) * min(1.0, max(0.0, position))


def make_market(profile: Profile, seed: int) -> Market:
    """Errors: ValueError for a trace file that does not fit the profile."""
    return Market(profile, seed, make_supply(profile, seed))


def _make_offer(zone: Zone, shape: Shape, kind: MarketKind) -> Offer:
    return Offer(
        provider=PROVIDER,
        region=zone.region,
        zone=zone.name,
        instance_type=shape.instance_type,
        market=kind,
        accelerators=shape.accelerators,
        num_cpus=shape.num_cpus,
        memory_gib=shape.memory_gib,
        on_demand_hourly_nano=to_hourly_nano(shape.on_demand_hourly_usd),
    )
