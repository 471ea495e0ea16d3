"""The price book on real databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread

import pytest
from sqlalchemy import select

from service.context import Context
from service.db.models import OfferRow, QuoteRow
from service.db.session import run_in_transaction, session_scope
from service.domain.offers import Market, Offer, Quote
from service.domain.price_book import PriceUnknown, PriceWindow
from service.prices.recording import RecordedQuotes, record_quotes
from service.prices.service import OfferFilter, current_offers, list_priced_offers, split_by_price

T0 = datetime(2026, 3, 1, tzinfo=UTC)
DOLLAR = 1_000_000_000


def offer(zone: str = "local-a-1", market: Market = Market.SPOT) -> Offer:
    return Offer(
        provider="local",
        region=zone[:-2],
        zone=zone,
        instance_type="sim.gpu1",
        market=market,
        accelerators="SIM:1",
        num_cpus=8,
        memory_gib=64,
        on_demand_hourly_nano=3 * DOLLAR,
    )


def minutes(count: float) -> datetime:
    return T0 + timedelta(minutes=count)


def record(context: Context, now: datetime, hourly_nano: object, at: datetime | None = None) -> RecordedQuotes:
    quote = Quote(offer_id=offer().id, at=at or now, hourly_nano=hourly_nano, source="market")  # type: ignore[arg-type]
    return run_in_transaction(context.sessions, lambda session: record_quotes(session, [offer()], [quote], now))


def price_now(context: Context, now: datetime) -> int | None:
    with session_scope(context.sessions, is_reader=True) as session:
        (priced,) = list_priced_offers(session, now)
        return priced.hourly_nano


def history(context: Context) -> list[tuple[datetime, int, str]]:
    with session_scope(context.sessions, is_reader=True) as session:
        rows = session.scalars(select(QuoteRow).order_by(QuoteRow.at))
        return [(row.at, row.hourly_nano, row.source) for row in rows]


def test_an_unchanged_price_is_confirmed_and_a_change_is_added(context: Context) -> None:
    assert record(context, minutes(0), DOLLAR).changed == 1
    assert record(context, minutes(1), DOLLAR).confirmed == 1
    assert record(context, minutes(2), 2 * DOLLAR).changed == 1
    assert history(context) == [(minutes(0), DOLLAR, "market"), (minutes(2), 2 * DOLLAR, "market")]
    with session_scope(context.sessions, is_reader=True) as session:
        assert session.get_one(QuoteRow, (offer().id, minutes(0))).seen_at == minutes(1)


@pytest.mark.parametrize("wrong", [None, float("nan"), 0, -DOLLAR, 1000 * DOLLAR])
def test_a_wrong_price_leaves_the_offer_without_one_until_a_good_one_comes(context: Context, wrong: object) -> None:
    record(context, minutes(0), DOLLAR)
    first, second = record(context, minutes(1), wrong), record(context, minutes(2), wrong)
    assert [rejected.is_news for rejected in (*first.rejected, *second.rejected)] == [True, False]
    assert price_now(context, minutes(2)) is None
    record(context, minutes(3), DOLLAR)
    assert price_now(context, minutes(3)) == DOLLAR


def test_what_runs_through_a_rejected_price_is_accrued_at_the_last_good_one(context: Context) -> None:
    record(context, minutes(0), DOLLAR)
    record(context, minutes(10), 0)
    record(context, minutes(20), 2 * DOLLAR)
    with session_scope(context.sessions, is_reader=True) as session:
        windows = split_by_price(session, offer().id, minutes(5), minutes(30))
    assert windows == (
        PriceWindow(start=minutes(5), end=minutes(20), hourly_nano=DOLLAR),
        PriceWindow(start=minutes(20), end=minutes(30), hourly_nano=2 * DOLLAR),
    )


def test_a_stale_price_admits_nothing_and_still_accrues(context: Context) -> None:
    record(context, minutes(0), DOLLAR)
    later = minutes(25 * 60)
    run_in_transaction(context.sessions, lambda session: record_quotes(session, [offer()], [], later))
    assert price_now(context, later) is None
    with session_scope(context.sessions, is_reader=True) as session:
        assert [window.hourly_nano for window in split_by_price(session, offer().id, minutes(0), later)] == [DOLLAR]


def test_a_window_before_the_first_quote_costs_the_first_price(context: Context) -> None:
    record(context, minutes(10), DOLLAR)
    record(context, minutes(20), 2 * DOLLAR)
    with session_scope(context.sessions, is_reader=True) as session:
        assert [piece.hourly_nano for piece in split_by_price(session, offer().id, minutes(0), minutes(5))] == [DOLLAR]
        assert [piece.hourly_nano for piece in split_by_price(session, offer().id, minutes(15), minutes(25))] == [
            DOLLAR,
            2 * DOLLAR,
        ]


def test_a_price_that_was_never_known_is_an_error(context: Context) -> None:
    record(context, minutes(0), 0)
    with session_scope(context.sessions, is_reader=True) as session, pytest.raises(PriceUnknown):
        split_by_price(session, offer().id, minutes(0), minutes(1))


def test_history_is_never_repriced_by_a_late_or_a_future_quote(context: Context) -> None:
    record(context, minutes(10), DOLLAR)
    record(context, minutes(20), 2 * DOLLAR, at=minutes(5))
    record(context, minutes(30), 3 * DOLLAR, at=minutes(99))
    record(context, minutes(25), 4 * DOLLAR)
    entries = history(context)
    assert entries[:3] == [
        (minutes(10), DOLLAR, "market"),
        (minutes(20), 2 * DOLLAR, "market"),
        (minutes(30), 3 * DOLLAR, "market"),
    ]
    assert entries[3][0] > minutes(30)


def test_two_recorders_at_once_write_one_entry(context: Context) -> None:
    barrier, outcomes = Barrier(2), []

    def race() -> None:
        barrier.wait()
        outcomes.append(record(context, minutes(0), 1000 * DOLLAR))

    threads = [Thread(target=race) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(rejected.is_news for outcome in outcomes for rejected in outcome.rejected) == [False, True]
    assert len(history(context)) == 1


def test_offers_are_listed_cheapest_first_with_filters(context: Context) -> None:
    zones = ["local-a-1", "local-a-2", "local-b-1"]
    offers = [*(offer(zone) for zone in zones), offer("local-a-1", Market.ON_DEMAND)]
    quotes = [
        Quote(offer_id=made.id, at=T0, hourly_nano=price, source="market")
        for made, price in zip(offers, [2 * DOLLAR, DOLLAR, 0, 3 * DOLLAR], strict=True)
    ]
    run_in_transaction(context.sessions, lambda session: record_quotes(session, offers, quotes, T0))
    with session_scope(context.sessions, is_reader=True) as session:
        listed = list_priced_offers(session, T0)
        assert [priced.hourly_nano for priced in listed] == [DOLLAR, 2 * DOLLAR, 3 * DOLLAR, None]
        assert listed[0].offer == offer("local-a-2")
        spot_in_a = current_offers(session, T0, OfferFilter(market=Market.SPOT, region="local-a"))
        assert [entry.priced.offer.zone for entry in spot_in_a] == ["local-a-2", "local-a-1"]


def test_an_offer_that_its_provider_no_longer_lists_disappears(context: Context) -> None:
    record(context, T0, DOLLAR)
    with session_scope(context.sessions, is_reader=True) as session:
        assert list_priced_offers(session, minutes(24 * 60))
        assert not list_priced_offers(session, minutes(24 * 60 + 1))
        assert session.get_one(OfferRow, offer().id).failure_count == 0
