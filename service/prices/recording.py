"""Record what providers say of prices.

A quote that is not believed is written too, as an entry of source `rejected` without a price: from then on the offer has no
price to admit by, while what runs there is still accrued at the last price that was believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, select, text
from sqlalchemy.orm import Session

from service.db.models import OfferRow, QuoteRow
from service.domain.offers import Offer, Quote
from service.domain.price_book import REJECTED, find_quote_fault, is_stale
from service.domain.terms import Terms
from service.prices.service import newest_instant

_LOCK_KEY = 7_263_901_146
_STALE = Terms().quote_stale
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class RejectedQuote:
    """A quote that was not believed. `is_news` is False while the offer's last entry is a rejection already."""

    offer_id: str
    reason: str
    is_news: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedQuotes:
    """What a recording changed: counts of prices that changed and that were merely confirmed."""

    changed: int
    confirmed: int
    rejected: tuple[RejectedQuote, ...]


def record_quotes(
    session: Session,
    offers: Sequence[Offer],
    quotes: Sequence[Quote],
    now: datetime,
    *,
    quote_stale: timedelta = _STALE,
) -> RecordedQuotes:
    """Add what a provider listed. An unchanged price is only confirmed; history is never changed.

    Offers that the list lacks stay as they are and go stale; so does the price of an offer without a quote.
    """
    _lock(session)
    known = _upsert_offers(session, offers, now)
    newest, good = _newest_quotes(session), _newest_quotes(session, QuoteRow.source != REJECTED)
    outcomes = [
        _record_quote(session, known[id_], quote, newest.get(id_), _fresh(good.get(id_), now, quote_stale), now)
        for id_, quote in _by_offer(quotes).items()
        if id_ in known
    ]
    session.flush()
    return RecordedQuotes(
        changed=outcomes.count("changed"),
        confirmed=outcomes.count("confirmed"),
        rejected=tuple(outcome for outcome in outcomes if isinstance(outcome, RejectedQuote)),
    )


def _lock(session: Session) -> None:
    """One recorder at a time. (SQLite has one writer anyway.)"""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})


def _upsert_offers(session: Session, offers: Sequence[Offer], now: datetime) -> dict[str, OfferRow]:
    known = {row.id: row for row in session.scalars(select(OfferRow))}
    for offer in sorted(offers, key=lambda offer: offer.id):
        row = known.get(offer.id)
        if row is None:
            row = known[offer.id] = OfferRow(id=offer.id, failure_count=0)
            session.add(row)
        row.provider, row.region, row.zone = offer.provider, offer.region, offer.zone
        row.instance_type, row.market, row.accelerators = offer.instance_type, offer.market.value, offer.accelerators
        row.num_cpus, row.memory_gib = offer.num_cpus, offer.memory_gib
        row.on_demand_hourly_nano, row.seen_at = offer.on_demand_hourly_nano, now
    return known


def _by_offer(quotes: Sequence[Quote]) -> dict[str, Quote]:
    return {quote.offer_id: quote for quote in sorted(quotes, key=lambda quote: quote.at)}


def _newest_quotes(session: Session, *conditions: ColumnElement[bool]) -> dict[str, QuoteRow]:
    is_newest = and_(QuoteRow.offer_id == OfferRow.id, QuoteRow.at == newest_instant(*conditions))
    return {row.offer_id: row for row in session.scalars(select(QuoteRow).join(OfferRow, is_newest))}


def _fresh(quote: QuoteRow | None, now: datetime, quote_stale: timedelta) -> QuoteRow | None:
    return quote if quote and not is_stale(quote.seen_at, now, quote_stale) else None


def _record_quote(
    session: Session, offer: OfferRow, quote: Quote, last: QuoteRow | None, good: QuoteRow | None, now: datetime
) -> str | RejectedQuote:
    """`last` is the offer's newest entry, `good` the newest believed one unless it is stale."""
    fault = find_quote_fault(
        quote.hourly_nano,
        last_good_nano=good.hourly_nano if good else None,
        on_demand_nano=offer.on_demand_hourly_nano,
    )
    source, hourly_nano = (REJECTED, 0) if fault else (quote.source, quote.hourly_nano)
    is_news = last is None or (last.source == REJECTED) != bool(fault) or last.hourly_nano != hourly_nano
    if is_news:
        at = _entry_instant(quote, last, now)
        session.add(QuoteRow(offer_id=offer.id, at=at, hourly_nano=hourly_nano, source=source, seen_at=now))
    elif last is not None:
        last.seen_at = max(last.seen_at, now)
    if fault:
        return RejectedQuote(offer_id=offer.id, reason=fault, is_news=is_news)
    return "changed" if is_news else "confirmed"


def _entry_instant(quote: Quote, last: QuoteRow | None, now: datetime) -> datetime:
    """The provider's instant, unless that lies ahead or before what is written: a new entry always comes last."""
    at = min(quote.at, now)
    if last is None or at > last.at:
        return at
    return max(now, last.at + _TICK)
