"""Where to launch next: the offers that will do, best first.

The one policy so far is the cheapest offer that is not known to be out of capacity. A deadline-aware policy takes this
function's place: it sees the same values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from service.domain.offers import Market, Offer
from service.domain.price_book import PricedOffer
from service.domain.snapshot import Candidate
from service.domain.states import StatusReason


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """A job's resources as a filter. Empty tuples admit everything; `market` None admits both."""

    market: Market | None
    accelerators: str | None
    providers: tuple[str, ...]
    regions: tuple[str, ...]
    instance_types: tuple[str, ...]
    max_hourly_nano: int | None


def rank_candidates(
    offers: Sequence[PricedOffer], wanted: Wanted, *, now: datetime
) -> tuple[tuple[Candidate, ...], StatusReason]:
    """Candidates by price, then by fewest recent failures; and the reason that holds when there is none."""
    matching = [priced for priced in offers if _is_match(priced.offer, wanted)]
    quoted = [(priced, candidate) for priced in matching if (candidate := _to_candidate(priced, wanted))]
    open_now = [
        (priced, candidate)
        for priced, candidate in quoted
        if priced.unavailable_until is None or priced.unavailable_until <= now
    ]
    open_now.sort(key=lambda pair: (pair[1].hourly_nano, pair[0].failure_count, pair[1].offer.id))
    reason = StatusReason.NO_CAPACITY if quoted else StatusReason.PRICE_UNKNOWN if matching else StatusReason.NO_OFFER
    return tuple(candidate for _, candidate in open_now), reason


def _is_match(offer: Offer, wanted: Wanted) -> bool:
    filters = (
        (offer.provider, wanted.providers),
        (offer.region, wanted.regions),
        (offer.instance_type, wanted.instance_types),
    )
    return (
        wanted.market in (None, offer.market)
        and wanted.accelerators in (None, offer.accelerators)
        and all(not allowed or value in allowed for value, allowed in filters)
    )


def _to_candidate(priced: PricedOffer, wanted: Wanted) -> Candidate | None:
    """None without a believed price, or with one above the ceiling: on-demand list price or `max_price`."""
    on_demand = priced.offer.on_demand_hourly_nano
    ceiling = min(on_demand, wanted.max_hourly_nano) if wanted.max_hourly_nano else on_demand
    if priced.hourly_nano is None or priced.hourly_nano > ceiling:
        return None
    return Candidate(offer=priced.offer, hourly_nano=priced.hourly_nano, ceiling_hourly_nano=ceiling)
