"""The refresh of the price book, from the shipped fake provider to real databases."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, select

from service.context import Context
from service.db.models import Attempt, Event, Job, OfferRow, Project, QuoteRow
from service.db.session import session_scope
from service.prices.service import current_offers, list_priced_offers
from worker.pricing.refresh import refresh_quotes
from worker.provision.fake import FakeProvisioner, make_fake_offers
from worker.provision.protocol import ProviderUnavailable

T0 = datetime(2026, 3, 1, tzinfo=UTC)
SPOT, OTHER = "fake/fake-a-1/fake.gpu1/spot", "fake/fake-a-2/fake.gpu1/spot"


class ManualClock:
    def __init__(self) -> None:
        self.now = T0

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ground(context: Context, clock: ManualClock) -> Context:
    return replace(context, clock=clock)


@pytest.fixture
def cloud(clock: ManualClock) -> FakeProvisioner:
    return FakeProvisioner(clock=clock)


def add_attempt(context: Context, job_id: str, *, state: str = "up", cause: str | None = None) -> None:
    with session_scope(context.sessions) as session:
        if session.get(Project, "prj-test") is None:
            session.add(Project(id="prj-test", name="test", created_at=T0))
            session.flush()
        session.add(
            Job(id=job_id, project_id="prj-test", name=job_id, spec={}, status="running", num_nodes=1, created_at=T0)
        )
        session.flush()
        session.add(
            Attempt(
                id=f"att-{job_id}",
                job_id=job_id,
                fence=1,
                state=state,
                cause=cause,
                lost_at=T0 if cause else None,
                cluster_name=f"gdw-{job_id}-1",
                offer_id=SPOT,
                num_nodes=1,
                ceiling_hourly_nano=10_000_000_000,
                hourly_nano=3_000_000_000,
                on_demand_hourly_nano=10_000_000_000,
                intended_at=T0,
                grant_until=T0,
                covered_until=T0,
                accrued_until=T0,
            )
        )


def test_offers_and_prices_come_in_and_stay_fresh(ground: Context, clock: ManualClock, cloud: FakeProvisioner) -> None:
    assert refresh_quotes(ground, cloud).changed == len(make_fake_offers())
    clock.now += timedelta(minutes=1)
    cloud.set_price(SPOT, 2_000_000_000)
    recorded = refresh_quotes(ground, cloud)
    assert (recorded.changed, recorded.confirmed) == (1, len(make_fake_offers()) - 1)
    with session_scope(ground.sessions, is_reader=True) as session:
        cheapest, *_ = list_priced_offers(session, clock.now)
        assert (cheapest.offer.id, cheapest.hourly_nano) == (SPOT, 2_000_000_000)
        assert session.scalar(select(func.count()).select_from(QuoteRow)) == len(make_fake_offers()) + 1


def test_no_transaction_is_open_while_the_provider_is_asked(ground: Context, cloud: FakeProvisioner) -> None:
    checked_out: list[int] = []

    class Watching:
        def __getattr__(self, name: str) -> object:
            checked_out.append(ground.sessions.kw["bind"].pool.checkedout())
            return getattr(cloud, name)

    refresh_quotes(ground, Watching())  # type: ignore[arg-type]
    assert checked_out == [0, 0]


def test_a_provider_that_is_away_changes_nothing_and_its_prices_go_stale(
    ground: Context, clock: ManualClock, cloud: FakeProvisioner
) -> None:
    refresh_quotes(ground, cloud)
    clock.now += timedelta(hours=23)
    cloud.fail_next("list_quotes", ProviderUnavailable("timed out"))
    with pytest.raises(ProviderUnavailable):
        refresh_quotes(ground, cloud)
    with session_scope(ground.sessions, is_reader=True) as session:
        assert all(priced.hourly_nano for priced in list_priced_offers(session, clock.now))
        assert session.scalar(select(func.max(OfferRow.seen_at))) == T0
        stale_at = clock.now + timedelta(hours=1, microseconds=1)
        assert not any(priced.hourly_nano for priced in list_priced_offers(session, stale_at))


def test_a_rejected_price_is_told_once_a_change_to_the_jobs_it_concerns(
    ground: Context, clock: ManualClock, cloud: FakeProvisioner
) -> None:
    """Fault 34: the price a thousandfold, for a while, then zero, then right."""
    refresh_quotes(ground, cloud)
    add_attempt(ground, "job-1")
    add_attempt(ground, "job-2", state="gone")
    for price in (3_000_000_000_000, 3_000_000_000_000, 0, 3_000_000_000, 0):
        clock.now += timedelta(minutes=1)
        cloud.set_price(SPOT, price)
        refresh_quotes(ground, cloud)
    with session_scope(ground.sessions, is_reader=True) as session:
        events = session.scalars(select(Event).order_by(Event.id)).all()
        assert [(event.type, event.job_id, event.data["offer_id"]) for event in events] == [
            ("price.rejected", "job-1", SPOT),
            ("price.rejected", "job-1", SPOT),
        ]
        assert "1e+03 times" in events[0].data["reason"]
        prices = {priced.offer.id: priced.hourly_nano for priced in list_priced_offers(session, clock.now)}
        assert prices[SPOT] is None
        assert prices[OTHER] == 3_000_000_000


def test_preemptions_of_the_last_day_are_counted(ground: Context, clock: ManualClock, cloud: FakeProvisioner) -> None:
    refresh_quotes(ground, cloud)
    add_attempt(ground, "job-1", state="gone", cause="preempted")
    add_attempt(ground, "job-2", state="gone", cause="user_error")
    with session_scope(ground.sessions, is_reader=True) as session:
        counts = {entry.priced.offer.id: entry.preemption_count for entry in current_offers(session, clock.now)}
        assert counts[SPOT] == 1
        assert counts[OTHER] == 0
    clock.now += timedelta(hours=24, seconds=1)
    refresh_quotes(ground, cloud)
    with session_scope(ground.sessions, is_reader=True) as session:
        assert not any(entry.preemption_count for entry in current_offers(session, clock.now))
