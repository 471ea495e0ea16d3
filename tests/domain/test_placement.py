"""Where to launch: filters, order, ceilings, and the reason when there is nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from service.domain.offers import Market
from service.domain.placement import Wanted, rank_candidates
from service.domain.price_book import PricedOffer
from service.domain.states import StatusReason
from tests.domain.snapshots import NOW, OFFER

ANYTHING = Wanted(market=None, accelerators=None, providers=(), regions=(), instance_types=(), max_hourly_nano=None)


def price(zone: str, hourly_nano: int | None, *, failures: int = 0, closed_for: float | None = None) -> PricedOffer:
    return PricedOffer(
        offer=replace(OFFER, zone=zone),
        hourly_nano=hourly_nano,
        quoted_at=NOW,
        seen_at=NOW,
        unavailable_until=None if closed_for is None else NOW + timedelta(seconds=closed_for),
        failure_count=failures,
    )


def zones(offers: list[PricedOffer], wanted: Wanted = ANYTHING) -> list[str]:
    candidates, _ = rank_candidates(offers, wanted, now=NOW)
    return [candidate.offer.zone for candidate in candidates]


def test_the_cheapest_comes_first_then_the_one_that_failed_least() -> None:
    offers = [price("dear", 9), price("flaky", 5, failures=3), price("sound", 5), price("cheap", 4, failures=9)]
    assert zones(offers) == ["cheap", "sound", "flaky", "dear"]


def test_offers_without_capacity_are_passed_over_until_their_time() -> None:
    offers = [price("closed", 1, closed_for=60), price("reopened", 2, closed_for=0), price("open", 3)]
    assert zones(offers) == ["reopened", "open"]


@pytest.mark.parametrize(
    ("offers", "wanted", "reason"),
    [
        ([], ANYTHING, StatusReason.NO_OFFER),
        ([price("a", 5)], replace(ANYTHING, accelerators="H100:8"), StatusReason.NO_OFFER),
        ([price("a", 5)], replace(ANYTHING, regions=("elsewhere",)), StatusReason.NO_OFFER),
        ([price("a", 5)], replace(ANYTHING, market=Market.ON_DEMAND), StatusReason.NO_OFFER),
        ([price("a", None)], ANYTHING, StatusReason.PRICE_UNKNOWN),
        ([price("a", 5)], replace(ANYTHING, max_hourly_nano=4), StatusReason.PRICE_UNKNOWN),
        ([price("a", 5, closed_for=9)], ANYTHING, StatusReason.NO_CAPACITY),
    ],
)
def test_nothing_to_launch_says_why(offers: list[PricedOffer], wanted: Wanted, reason: StatusReason) -> None:
    assert rank_candidates(offers, wanted, now=NOW) == ((), reason)


def test_the_ceiling_is_the_on_demand_price_or_the_users_maximum() -> None:
    (candidate,), _ = rank_candidates([price("a", 5)], ANYTHING, now=NOW)
    assert candidate.ceiling_hourly_nano == OFFER.on_demand_hourly_nano
    (capped,), _ = rank_candidates([price("a", 5)], replace(ANYTHING, max_hourly_nano=7), now=NOW)
    assert capped.ceiling_hourly_nano == 7
    above = [price("a", OFFER.on_demand_hourly_nano + 1)]
    assert zones(above) == []
