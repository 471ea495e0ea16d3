"""`/v1/offers` and `/v1/quotes`: the price book."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import Query
from pydantic import AwareDatetime

from service.api.auth import Viewer
from service.api.dependencies import Ctx, Now, ReadDb
from service.api.pagination import Cursor, Limit, Page, decode_time_cursor, encode_cursor
from service.api.problems import Problem, not_found
from service.api.routing import make_router
from service.db.models import OfferRow
from service.domain.offers import Market
from service.prices.schemas import OfferShown, QuoteShown, show_offer, show_quote
from service.prices.service import OfferFilter, current_offers, list_quotes

router = make_router("/v1", "prices")
_NameFilter = Annotated[str | None, Query(max_length=255)]


@router.get("/offers")
def list_offers(
    _who: Viewer,
    session: ReadDb,
    now: Now,
    context: Ctx,
    provider: _NameFilter = None,
    region: _NameFilter = None,
    zone: _NameFilter = None,
    instance_type: _NameFilter = None,
    accelerators: _NameFilter = None,
    market: Annotated[Market | None, Query()] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[OfferShown]:
    """Cheapest first; offers without a price to rely on come last. A page continues after the offer that ended the last."""
    filters = OfferFilter(
        provider=provider,
        region=region,
        zone=zone,
        instance_type=instance_type,
        accelerators=accelerators,
        market=market,
    )
    entries = current_offers(session, now, filters, quote_stale=context.settings.quote_stale)
    start = _start_after([entry.priced.offer.id for entry in entries], cursor)
    page = entries[start : start + limit]
    has_more = start + limit < len(entries)
    return Page(
        items=[show_offer(entry, now) for entry in page],
        next_cursor=encode_cursor(now.isoformat(), page[-1].priced.offer.id) if has_more else None,
    )


@router.get("/quotes")
def list_quotes_endpoint(
    _who: Viewer,
    session: ReadDb,
    now: Now,
    offer: Annotated[str, Query(max_length=1024, description="the offer's id")],
    since: Annotated[AwareDatetime | None, Query(description="default: 7 days ago")] = None,
    until: Annotated[AwareDatetime | None, Query(description="default: now")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[QuoteShown]:
    """An offer's price history, newest first. Each price holds until the next one."""
    if session.get(OfferRow, offer) is None:
        raise not_found("offer")
    after = decode_time_cursor(cursor)
    begin = since or now - timedelta(days=7)
    end = after[0] if after else until or now + timedelta(microseconds=1)
    rows = list_quotes(session, offer, since=_to_utc(begin), until=_to_utc(end), limit=limit + 1)
    has_more = len(rows) > limit
    return Page(
        items=[show_quote(row) for row in rows[:limit]],
        next_cursor=encode_cursor(rows[limit - 1].at.isoformat(), offer) if has_more else None,
    )


def _start_after(ids: list[str], cursor: str | None) -> int:
    """Errors: Problem 422 for a cursor whose offer is gone from the list."""
    after = decode_time_cursor(cursor)
    if after is None:
        return 0
    try:
        return ids.index(after[1]) + 1
    except ValueError as error:
        remedy = "Begin again without a cursor."
        raise Problem(422, "invalid_cursor", "cursor: its offer is no longer listed", remedy=remedy) from error


def _to_utc(instant: datetime) -> datetime:
    """Errors: Problem 422 for an instant that no calendar has in UTC."""
    try:
        return instant.astimezone(UTC)
    except OverflowError as error:
        raise Problem(422, "invalid", "since, until: out of range", remedy="Give an instant of this age.") from error
