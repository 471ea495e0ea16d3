"""What the price book's endpoints show. Prices are US dollars a node and hour."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from service.api.money import UsdText, to_usd, to_usd_or_none
from service.db.models import QuoteRow
from service.domain.offers import Market
from service.domain.price_book import REJECTED
from service.prices.service import OfferQuote


class OfferShown(BaseModel):
    id: str
    provider: str
    region: str
    zone: str
    instance_type: str
    market: Market
    accelerators: str | None
    num_cpus: int
    memory_gib: float
    hourly_usd: UsdText | None = Field(
        description="null while there is no price to rely on: missing, rejected or stale"
    )
    on_demand_hourly_usd: UsdText
    price_source: str | None = Field(description="`rejected` when the provider's last price was not believed")
    price_since: datetime | None
    price_age_seconds: int | None = Field(description="since the provider last confirmed it")
    unavailable_until: datetime | None
    unavailable_reason: str | None
    preemptions_24h: int


class QuoteShown(BaseModel):
    at: datetime
    hourly_usd: UsdText | None = Field(description="null for a price that was not believed")
    source: str
    seen_at: datetime


def show_offer(entry: OfferQuote, now: datetime) -> OfferShown:
    priced, offer = entry.priced, entry.priced.offer
    age = None if priced.seen_at is None else max(0, int((now - priced.seen_at).total_seconds()))
    return OfferShown(
        id=offer.id,
        provider=offer.provider,
        region=offer.region,
        zone=offer.zone,
        instance_type=offer.instance_type,
        market=offer.market,
        accelerators=offer.accelerators,
        num_cpus=offer.num_cpus,
        memory_gib=offer.memory_gib,
        hourly_usd=to_usd_or_none(priced.hourly_nano),
        on_demand_hourly_usd=to_usd(offer.on_demand_hourly_nano),
        price_source=entry.source,
        price_since=priced.quoted_at,
        price_age_seconds=age,
        unavailable_until=priced.unavailable_until,
        unavailable_reason=entry.unavailable_reason,
        preemptions_24h=entry.preemption_count,
    )


def show_quote(row: QuoteRow) -> QuoteShown:
    is_believed = row.source != REJECTED
    return QuoteShown(
        at=row.at, hourly_usd=to_usd(row.hourly_nano) if is_believed else None, source=row.source, seen_at=row.seen_at
    )
