"""`/v1/offers` and `/v1/quotes` over the whole API."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from fastapi.testclient import TestClient

from service.context import Context
from service.db.models import OfferRow, QuoteRow
from service.db.session import run_in_transaction, session_scope
from service.domain.offers import Market, Offer, Quote
from service.prices.recording import record_quotes

DOLLAR = 1_000_000_000


def make_offers() -> list[Offer]:
    return [
        Offer(
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
        for zone in ("local-a-1", "local-a-2", "local-b-1")
        for market in Market
    ]


def record(context: Context, prices: list[int], now: datetime) -> None:
    offers = make_offers()
    quotes = [
        Quote(offer_id=offer.id, at=now, hourly_nano=price, source="market")
        for offer, price in zip(offers, prices, strict=True)
    ]
    run_in_transaction(context.sessions, lambda session: record_quotes(session, offers, quotes, now))


@pytest.fixture
def listed(context: Context) -> datetime:
    """Six offers, priced just now; the second spot one has no price to believe."""
    now = context.clock()
    record(context, [2 * DOLLAR, 3 * DOLLAR, 0, 3 * DOLLAR, 1_234_567_891, 3 * DOLLAR], now)
    return now


@pytest.mark.usefixtures("listed")
def test_offers_come_cheapest_first_with_their_price_and_its_age(client: TestClient) -> None:
    items = client.get("/v1/offers").json()["items"]
    assert [item["hourly_usd"] for item in items] == ["1.234567891", "2.00", "3.00", "3.00", "3.00", None]
    assert items[0]["id"] == "local/local-b-1/sim.gpu1/spot"
    assert items[0]["on_demand_hourly_usd"] == "3.00"
    assert items[0]["price_source"] == "market"
    assert 0 <= items[0]["price_age_seconds"] < 60
    assert items[-1]["price_source"] == "rejected"


@pytest.mark.usefixtures("listed")
def test_filters_narrow_the_list(client: TestClient) -> None:
    spot = client.get("/v1/offers", params={"market": "spot", "region": "local-a"}).json()["items"]
    assert [item["zone"] for item in spot] == ["local-a-1", "local-a-2"]
    assert client.get("/v1/offers", params={"accelerators": "H100:8"}).json()["items"] == []
    assert client.get("/v1/offers", params={"market": "cheap"}).status_code == 422


@pytest.mark.usefixtures("listed")
def test_pages_cover_everything_once(client: TestClient) -> None:
    seen, cursor = [], ""
    while cursor is not None:
        page = client.get("/v1/offers", params={"limit": 4, **({"cursor": cursor} if cursor else {})}).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
    assert seen == [item["id"] for item in client.get("/v1/offers").json()["items"]]


def test_a_cursor_whose_offer_is_gone_is_refused(client: TestClient, context: Context, listed: datetime) -> None:
    page = client.get("/v1/offers", params={"limit": 1}).json()
    with session_scope(context.sessions) as session:
        gone = session.get_one(OfferRow, page["items"][0]["id"])
        gone.seen_at = listed - timedelta(days=2)
    answer = client.get("/v1/offers", params={"cursor": page["next_cursor"]})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_cursor")


def test_an_offers_history_newest_first(client: TestClient, context: Context, listed: datetime) -> None:
    offer = "local/local-a-1/sim.gpu1/spot"
    with session_scope(context.sessions) as session:
        for hours, price in ((1, DOLLAR), (2, 2 * DOLLAR), (24 * 8, DOLLAR)):
            at = listed - timedelta(hours=hours)
            session.add(QuoteRow(offer_id=offer, at=at, hourly_nano=price, source="market", seen_at=at))
    items = client.get("/v1/quotes", params={"offer": offer}).json()["items"]
    assert [item["hourly_usd"] for item in items] == ["2.00", "1.00", "2.00"]
    first = client.get("/v1/quotes", params={"offer": offer, "limit": 2}).json()
    rest = client.get("/v1/quotes", params={"offer": offer, "cursor": first["next_cursor"]}).json()
    assert first["items"] + rest["items"] == items
    since = (listed - timedelta(days=9)).isoformat()
    assert len(client.get("/v1/quotes", params={"offer": offer, "since": since}).json()["items"]) == 4


@pytest.mark.usefixtures("listed")
def test_a_rejected_entry_shows_no_price(client: TestClient) -> None:
    (entry,) = client.get("/v1/quotes", params={"offer": "local/local-a-2/sim.gpu1/on-demand"}).json()["items"]
    (rejected,) = client.get("/v1/quotes", params={"offer": "local/local-a-2/sim.gpu1/spot"}).json()["items"]
    assert entry["hourly_usd"] == "3.00"
    assert (rejected["hourly_usd"], rejected["source"]) == (None, "rejected")


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({}, 422),
        ({"offer": "no/such/offer/spot"}, 404),
        ({"offer": "local/local-a-1/sim.gpu1/spot", "since": "yesterday"}, 422),
        ({"offer": "local/local-a-1/sim.gpu1/spot", "since": "2026-01-01T00:00:00"}, 422),
        ({"offer": "local/local-a-1/sim.gpu1/spot", "since": "0001-01-01T00:00:00+14:00"}, 422),
        ({"offer": "local/local-a-1/sim.gpu1/spot", "cursor": "x"}, 422),
    ],
)
@pytest.mark.usefixtures("listed")
def test_bad_questions_about_quotes(client: TestClient, params: dict[str, str], status: int) -> None:
    assert client.get("/v1/quotes", params=params).status_code == status


@pytest.mark.parametrize("path", ["/v1/offers", "/v1/quotes?offer=x"])
def test_prices_need_a_key(client: TestClient, path: str) -> None:
    assert client.get(path, headers={"Authorization": "Bearer gdw_x_y"}).status_code == 401
