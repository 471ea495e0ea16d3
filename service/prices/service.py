"""The price book's answers: what offers cost now, and what one did cost. Nothing here writes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, ScalarSelect, and_, func, select
from sqlalchemy.orm import Session

from service.db.models import Attempt, OfferRow, QuoteRow
from service.domain.offers import Market, Offer, Quote
from service.domain.price_book import (
    REJECTED,
    PricedOffer,
    PriceWindow,
    is_stale,
    split_window,
)
from service.domain.states import AttemptCause
from service.domain.terms import Terms

_STALE = Terms().quote_stale


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferFilter:
    """Which offers to show; None admits all."""

    provider: str | None = None
    region: str | None = None
    zone: str | None = None
    instance_type: str | None = None
    accelerators: str | None = None
    market: Market | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferQuote:
    """An offer as users see it. `preemption_count` is of the last 24 hours, over all jobs."""

    priced: PricedOffer
    source: str | None
    unavailable_reason: str | None
    preemption_count: int


def list_priced_offers(session: Session, now: datetime, *, quote_stale: timedelta = _STALE) -> tuple[PricedOffer, ...]:
    """Every offer that its provider still lists, cheapest first, those without a price last."""
    rows = _newest_quotes(session, now, OfferFilter(), quote_stale)
    shown = [_to_offer_quote(offer, quote, 0, now, quote_stale) for offer, quote in rows]
    return tuple(entry.priced for entry in sorted(shown, key=_price_order))


def current_offers(
    session: Session, now: datetime, filters: OfferFilter | None = None, *, quote_stale: timedelta = _STALE
) -> tuple[OfferQuote, ...]:
    """The offers that match, cheapest first, those without a price last."""
    rows = _newest_quotes(session, now, filters or OfferFilter(), quote_stale)
    preemptions = _count_preemptions(session, now - timedelta(hours=24))
    shown = [_to_offer_quote(offer, quote, preemptions.get(offer.id, 0), now, quote_stale) for offer, quote in rows]
    return tuple(sorted(shown, key=_price_order))


def _newest_quotes(
    session: Session, now: datetime, filters: OfferFilter, quote_stale: timedelta
) -> list[tuple[OfferRow, QuoteRow | None]]:
    rows = session.execute(
        select(OfferRow, QuoteRow)
        .outerjoin(QuoteRow, and_(QuoteRow.offer_id == OfferRow.id, QuoteRow.at == newest_instant()))
        .where(OfferRow.seen_at >= now - quote_stale, *_conditions(filters))
    )
    return [(row[0], row[1]) for row in rows]


def split_by_price(session: Session, offer_id: str, start: datetime, end: datetime) -> tuple[PriceWindow, ...]:
    """The window cut where the offer's price changed: in order, no gap, no overlap. A stale price still counts.

    Errors: PriceUnknown when no quote of the offer was ever believed.
    """
    return split_window(_quotes_bearing_on(session, offer_id, start, end), start, end)


def list_quotes(
    session: Session, offer_id: str, *, since: datetime, until: datetime, limit: int
) -> tuple[QuoteRow, ...]:
    """The offer's entries with `since <= at < until`, newest first, rejections among them."""
    rows = session.scalars(
        select(QuoteRow)
        .where(QuoteRow.offer_id == offer_id, QuoteRow.at >= since, QuoteRow.at < until)
        .order_by(QuoteRow.at.desc())
        .limit(limit)
    )
    return tuple(rows)


def newest_instant(*conditions: ColumnElement[bool]) -> ScalarSelect[datetime]:
    """For a query over offers: the instant of each one's newest entry that meets the conditions."""
    of_offer = select(func.max(QuoteRow.at)).where(QuoteRow.offer_id == OfferRow.id, *conditions)
    return of_offer.correlate(OfferRow).scalar_subquery()


def _quotes_bearing_on(session: Session, offer_id: str, start: datetime, end: datetime) -> list[Quote]:
    """Those inside the window and the one that held at its start, or the earliest of all."""
    believed: list[ColumnElement[bool]] = [QuoteRow.offer_id == offer_id, QuoteRow.source != REJECTED]
    at_start = select(func.max(QuoteRow.at)).where(*believed, QuoteRow.at <= start).scalar_subquery()
    earliest = select(func.min(QuoteRow.at)).where(*believed).scalar_subquery()
    rows = session.scalars(
        select(QuoteRow).where(*believed, QuoteRow.at >= func.coalesce(at_start, earliest), _begins_by(end, earliest))
    )
    return [Quote(offer_id=row.offer_id, at=row.at, hourly_nano=row.hourly_nano, source=row.source) for row in rows]


def _begins_by(end: datetime, earliest: ColumnElement[datetime]) -> ColumnElement[bool]:
    return (QuoteRow.at < end) | (QuoteRow.at == earliest)


def _conditions(filters: OfferFilter) -> list[ColumnElement[bool]]:
    wanted = {
        OfferRow.provider: filters.provider,
        OfferRow.region: filters.region,
        OfferRow.zone: filters.zone,
        OfferRow.instance_type: filters.instance_type,
        OfferRow.accelerators: filters.accelerators,
        OfferRow.market: filters.market,
    }
    return [column == value for column, value in wanted.items() if value is not None]


def _count_preemptions(session: Session, since: datetime) -> dict[str, int]:
    rows = session.execute(
        select(Attempt.offer_id, func.count())
        .where(Attempt.cause == AttemptCause.PREEMPTED, func.coalesce(Attempt.lost_at, Attempt.notice_at) >= since)
        .group_by(Attempt.offer_id)
    )
    return {row[0]: row[1] for row in rows}


def _to_offer_quote(
    offer: OfferRow, quote: QuoteRow | None, preemption_count: int, now: datetime, quote_stale: timedelta
) -> OfferQuote:
    is_relied_on = quote is not None and quote.source != REJECTED and not is_stale(quote.seen_at, now, quote_stale)
    priced = PricedOffer(
        offer=to_offer(offer),
        hourly_nano=quote.hourly_nano if quote and is_relied_on else None,
        quoted_at=quote.at if quote else None,
        seen_at=quote.seen_at if quote else None,
        unavailable_until=offer.unavailable_until,
        failure_count=offer.failure_count,
    )
    return OfferQuote(
        priced=priced,
        source=quote.source if quote else None,
        unavailable_reason=offer.unavailable_reason,
        preemption_count=preemption_count,
    )


def to_offer(row: OfferRow) -> Offer:
    """The offer as the domain knows it."""
    return Offer(
        provider=row.provider,
        region=row.region,
        zone=row.zone,
        instance_type=row.instance_type,
        market=Market(row.market),
        accelerators=row.accelerators,
        num_cpus=row.num_cpus,
        memory_gib=row.memory_gib,
        on_demand_hourly_nano=row.on_demand_hourly_nano,
    )


def _price_order(entry: OfferQuote) -> tuple[bool, int, str]:
    hourly_nano = entry.priced.hourly_nano
    return hourly_nano is None, hourly_nano or 0, entry.priced.offer.id
