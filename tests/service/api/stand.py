"""Writes rows as the reconciler and the nodes do, for tests of what the API shows of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import update

from service.context import Context
from service.db.models import Attempt, Base, Job, OfferRow, QuoteRow
from service.db.session import session_scope
from service.ids import cluster_name, new_id

T0 = datetime(2030, 1, 1, tzinfo=UTC)
OFFER = "local/local-a-1/sim.gpu1/spot"
NANO = 1_000_000_000


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class Stand:
    context: Context

    def add(self, *rows: Base) -> None:
        with session_scope(self.context.sessions) as session:
            for row in rows:
                session.add(row)
                session.flush()

    def change_job(self, job_id: str, **values: Any) -> None:
        with session_scope(self.context.sessions) as session:
            session.execute(update(Job).where(Job.id == job_id).values(**values))

    def add_attempt(self, job_id: str, fence: int, **values: Any) -> Attempt:
        row = Attempt(
            **{
                "id": new_id("att"),
                "job_id": job_id,
                "fence": fence,
                "state": "up",
                "cluster_name": cluster_name(job_id, fence),
                "offer_id": OFFER,
                "num_nodes": 1,
                "ceiling_hourly_nano": 3 * NANO,
                "hourly_nano": NANO,
                "on_demand_hourly_nano": 3 * NANO,
                "intended_at": at(0),
                "grant_until": at(900),
                "covered_until": at(1300),
                "accrued_until": at(0),
                **values,
            }
        )
        self.add(row)
        return row

    def add_offer(self, offer_id: str = OFFER, hourly_nano: int = NANO) -> None:
        provider, zone, instance_type, market = offer_id.split("/")
        now = self.context.clock()
        offer = OfferRow(
            id=offer_id,
            provider=provider,
            region=zone.rsplit("-", 1)[0],
            zone=zone,
            instance_type=instance_type,
            market=market,
            accelerators="SIM:1",
            num_cpus=4,
            memory_gib=16.0,
            on_demand_hourly_nano=3 * NANO,
            seen_at=now,
        )
        quote = QuoteRow(offer_id=offer_id, at=now, hourly_nano=hourly_nano, source="observed", seen_at=now)
        self.add(offer, quote)
