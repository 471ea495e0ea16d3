"""The price book's judgement."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.money import accrued_nano
from service.domain.offers import Quote
from service.domain.price_book import (
    REJECTED,
    PriceUnknown,
    find_quote_fault,
    hourly_at,
    is_stale,
    split_window,
)

T0 = datetime(2026, 3, 1, tzinfo=UTC)
DOLLAR = 1_000_000_000

instants = st.integers(0, 100_000).map(lambda seconds: T0 + timedelta(seconds=seconds))
quote_lists = st.lists(
    st.builds(
        lambda at, hourly, is_rejected: quote(at, hourly, REJECTED if is_rejected else "catalog"),
        instants,
        st.integers(1, 5).map(lambda dollars: dollars * DOLLAR),
        st.booleans(),
    ),
    max_size=12,
    unique_by=lambda made: made.at,
)


def quote(at: datetime, hourly_nano: int, source: str = "catalog") -> Quote:
    return Quote(offer_id="local/a/m/spot", at=at, hourly_nano=hourly_nano, source=source)


def minutes(count: float) -> datetime:
    return T0 + timedelta(minutes=count)


def test_a_window_is_cut_where_the_price_changes() -> None:
    quotes = [quote(minutes(30), 2 * DOLLAR), quote(minutes(0), DOLLAR), quote(minutes(90), 9 * DOLLAR)]
    windows = split_window(quotes, minutes(10), minutes(60))
    assert [(window.start, window.end, window.hourly_nano) for window in windows] == [
        (minutes(10), minutes(30), DOLLAR),
        (minutes(30), minutes(60), 2 * DOLLAR),
    ]


def test_before_the_first_quote_its_price_holds() -> None:
    quotes = [quote(minutes(30), 2 * DOLLAR)]
    assert hourly_at(quotes, minutes(0)) == 2 * DOLLAR
    assert [window.hourly_nano for window in split_window(quotes, minutes(0), minutes(60))] == [2 * DOLLAR]


def test_rejected_quotes_change_no_price() -> None:
    quotes = [quote(minutes(0), DOLLAR), quote(minutes(5), 0, REJECTED)]
    assert hourly_at(quotes, minutes(10)) == DOLLAR
    assert len(split_window(quotes, minutes(0), minutes(10))) == 1


@pytest.mark.parametrize("quotes", [[], [quote(T0, 0, REJECTED)]], ids=["none", "rejected alone"])
def test_without_a_believed_quote_the_price_is_unknown(quotes: list[Quote]) -> None:
    with pytest.raises(PriceUnknown):
        hourly_at(quotes, T0)
    with pytest.raises(PriceUnknown):
        split_window(quotes, T0, minutes(1))


def test_an_empty_window_has_no_pieces() -> None:
    assert split_window([quote(T0, DOLLAR)], minutes(5), minutes(5)) == ()


@given(quote_lists, instants, instants)
def test_windows_tile_the_whole_in_order(quotes: list[Quote], one: datetime, other: datetime) -> None:
    start, end = min(one, other), max(one, other)
    if not any(made.source != REJECTED for made in quotes):
        with pytest.raises(PriceUnknown):
            split_window(quotes, start, end)
        return
    windows = split_window(quotes, start, end)
    assert [window.start for window in windows] == ([start] + [window.end for window in windows[:-1]])[: len(windows)]
    assert sum((window.end - window.start for window in windows), timedelta()) == end - start
    assert all(window.start < window.end for window in windows)
    assert all(a.hourly_nano != b.hourly_nano for a, b in pairwise(windows))


@given(quote_lists.filter(lambda made: any(entry.source != REJECTED for entry in made)), instants, st.integers(1, 999))
def test_the_sum_over_windows_is_the_integral(quotes: list[Quote], start: datetime, seconds: int) -> None:
    """Second by second, straight from the definition; prices in the strategy make every second a whole number."""
    windows = split_window(quotes, start, start + timedelta(seconds=seconds))
    by_definition = sum(hourly_at(quotes, start + timedelta(seconds=second)) for second in range(seconds))
    total = sum(accrued_nano(window.hourly_nano, window.end - window.start) * 3600 for window in windows)
    assert 0 <= by_definition - total < 3600 * len(windows)


@pytest.mark.parametrize(
    ("price", "reason"),
    [
        (None, "missing"),
        (float("nan"), "not a number"),
        (Decimal("NaN"), "not a number"),
        (float("inf"), "not a number"),
        (0, "zero"),
        (-DOLLAR, "negative"),
        (1000 * DOLLAR, "1e+03 times the last price"),
        (DOLLAR // 1000, "1/1e+03 of the last price"),
        (100 * DOLLAR, "100 times the last price"),
    ],
)
def test_a_wrong_price_is_rejected_with_its_reason(price: float | Decimal | None, reason: str) -> None:
    fault = find_quote_fault(price, last_good_nano=DOLLAR, on_demand_nano=3 * DOLLAR)
    assert fault is not None
    assert reason in fault


@pytest.mark.parametrize("price", [DOLLAR, DOLLAR // 25, 25 * DOLLAR, Decimal(DOLLAR)])
def test_a_price_that_moves_within_reason_is_believed(price: int | Decimal) -> None:
    assert find_quote_fault(price, last_good_nano=DOLLAR, on_demand_nano=3 * DOLLAR) is None


def test_a_first_price_is_judged_by_on_demand() -> None:
    assert find_quote_fault(DOLLAR, last_good_nano=None, on_demand_nano=3 * DOLLAR) is None
    assert "on-demand" in (find_quote_fault(1000 * DOLLAR, last_good_nano=None, on_demand_nano=DOLLAR) or "")
    assert "on-demand" in (find_quote_fault(DOLLAR, last_good_nano=None, on_demand_nano=0) or "")


def test_a_price_is_stale_after_the_bound() -> None:
    bound = timedelta(hours=24)
    assert not is_stale(T0, T0 + bound, bound)
    assert is_stale(T0, T0 + bound + timedelta(microseconds=1), bound)
