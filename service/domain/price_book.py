"""The price book's judgement: which quotes to believe, what an hour costs at an instant, and how a window splits.

Prices are nano-dollars a node and hour. A quote holds from its instant until the next one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import pairwise

from service.domain.offers import Offer, Quote

REJECTED = "rejected"
"""Source of an entry that records a quote which was not believed: from then on the offer has no price to admit by."""

_MAX_JUMP = 100
"""Cents taken for dollars are a factor of 100; spot prices move by less than 10 and spot costs more than 1/50 of on-demand."""


class PriceUnknown(Exception):
    """No quote that was believed is known of an offer. Whoever holds to a cap fails closed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedOffer:
    """An offer and its price now; `hourly_nano` is None when there is none to rely on (missing, rejected, stale).

    `quoted_at` is when the price began, `seen_at` when the provider last confirmed it.
    """

    offer: Offer
    hourly_nano: int | None
    quoted_at: datetime | None
    seen_at: datetime | None
    unavailable_until: datetime | None
    failure_count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceWindow:
    """A span at one price. `start < end`."""

    start: datetime
    end: datetime
    hourly_nano: int


def hourly_at(quotes: Iterable[Quote], instant: datetime) -> int:
    """The price at an instant; before the first quote, that of the first. Rejected quotes do not count.

    Errors: PriceUnknown when there is no quote.
    """
    believed = _believed(quotes)
    began = [quote for quote in believed if quote.at <= instant]
    return (began[-1] if began else believed[0]).hourly_nano


def split_window(quotes: Iterable[Quote], start: datetime, end: datetime) -> tuple[PriceWindow, ...]:
    """The window cut where the price changes: in order, without gap or overlap; empty when `end <= start`.

    Errors: PriceUnknown when there is no quote.
    """
    believed = _believed(quotes)
    if end <= start:
        return ()
    instants = [start, *(quote.at for quote in believed if start < quote.at < end), end]
    pieces = [
        PriceWindow(start=begin, end=until, hourly_nano=hourly_at(believed, begin))
        for begin, until in pairwise(instants)
        if begin < until
    ]
    return tuple(_join_equal(pieces))


def find_quote_fault(
    hourly_nano: int | float | Decimal | None, *, last_good_nano: int | None, on_demand_nano: int
) -> str | None:
    """Why a new price is not to be believed, or None when it is.

    `last_good_nano` is the offer's last believed price while it is not stale; without one, on-demand alone judges.
    """
    if hourly_nano is None:
        return "the price is missing"
    if not math.isfinite(hourly_nano):
        return "the price is not a number"
    if hourly_nano <= 0:
        return "the price is negative" if hourly_nano < 0 else "the price is zero"
    if on_demand_nano <= 0:
        return "the offer's on-demand price is not positive"
    for name, known in (("the last price", last_good_nano), ("the on-demand price", on_demand_nano)):
        if known is not None and not known < hourly_nano * _MAX_JUMP < known * _MAX_JUMP**2:
            return f"the price is {_describe_ratio(hourly_nano, known)} {name}"
    return None


def is_stale(seen_at: datetime, now: datetime, quote_stale: timedelta) -> bool:
    """The provider has not confirmed this price for too long."""
    return now - seen_at > quote_stale


def _believed(quotes: Iterable[Quote]) -> Sequence[Quote]:
    believed = sorted((quote for quote in quotes if quote.source != REJECTED), key=lambda quote: quote.at)
    if not believed:
        raise PriceUnknown("no quote is known")
    return believed


def _join_equal(pieces: Iterable[PriceWindow]) -> list[PriceWindow]:
    joined: list[PriceWindow] = []
    for piece in pieces:
        if joined and joined[-1].hourly_nano == piece.hourly_nano:
            joined[-1] = PriceWindow(start=joined[-1].start, end=piece.end, hourly_nano=piece.hourly_nano)
        else:
            joined.append(piece)
    return joined


def _describe_ratio(price: int | float | Decimal, known: int) -> str:
    ratio = float(price) / known
    return f"{ratio:.3g} times" if ratio >= 1 else f"1/{1 / ratio:.3g} of"
