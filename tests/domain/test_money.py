"""Money: exact, and a reservation covers its accruals however its span is cut."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.money import accrued_nano, ceil_second, floor_second, format_usd, from_nano, reserved_nano, to_nano

prices = st.integers(1, 10**15)
microseconds = st.integers(0, 10**12)


def us(count: int) -> timedelta:
    return timedelta(microseconds=count)


@settings(max_examples=500)
@given(prices, st.integers(1, 64), st.lists(microseconds, min_size=1, max_size=8))
def test_cutting_a_span_into_windows_never_moves_spent_plus_reserved_up(
    hourly_nano: int, num_nodes: int, cuts: list[int]
) -> None:
    held = first = reserved_nano(hourly_nano, us(sum(cuts)), num_nodes)
    spent, left = 0, sum(cuts)
    for cut in cuts:
        spent += accrued_nano(hourly_nano, us(cut), num_nodes)
        left -= cut
        held = reserved_nano(hourly_nano, us(left), num_nodes)
        assert spent + held <= first
    assert held == 0


@settings(max_examples=300)
@given(prices, microseconds)
def test_the_two_roundings_enclose_the_exact_amount(hourly_nano: int, count: int) -> None:
    exact = Decimal(hourly_nano) * count / Decimal(3_600_000_000)
    low, high = accrued_nano(hourly_nano, us(count)), reserved_nano(hourly_nano, us(count))
    assert low <= exact <= high
    assert high - low <= 1


def test_a_span_that_is_over_holds_nothing() -> None:
    assert reserved_nano(10**9, timedelta(seconds=-5)) == 0


@settings(max_examples=300)
@given(st.integers(-(10**18), 10**18))
def test_nano_dollars_survive_the_way_through_decimal(nano: int) -> None:
    assert to_nano(from_nano(nano)) == nano


@pytest.mark.parametrize("amount", ["NaN", "Infinity", "-Infinity", "sNaN"])
def test_what_is_no_amount_of_money_is_refused(amount: str) -> None:
    with pytest.raises(ValueError, match="not an amount of money"):
        to_nano(Decimal(amount))


def test_a_thousand_dimes_are_a_hundred_dollars() -> None:
    assert sum(to_nano(Decimal("0.1")) for _ in range(1000)) == to_nano(Decimal(100))


@pytest.mark.parametrize(
    ("nano", "text"),
    [
        (1_234_560_000_000, "$1,234.56"),
        (0, "$0.00"),
        (1_000_000, "$0.0010"),
        (10_000_000, "$0.01"),
        (-5_500_000_000, "-$5.50"),
    ],
)
def test_amounts_read_as_dollars(nano: int, text: str) -> None:
    assert format_usd(nano) == text


@settings(max_examples=200)
@given(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_billed_seconds_are_whole_and_enclose_the_instant(instant: datetime) -> None:
    low, high = floor_second(instant), ceil_second(instant)
    assert low.microsecond == high.microsecond == 0
    assert low <= instant <= high
    assert high - low == (timedelta(seconds=1) if instant.microsecond else timedelta(0))
