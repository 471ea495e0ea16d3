"""Accrual and the guard: every second once, at the price in force; the money moves with it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from service.db.models import LedgerEntry
from service.domain.money import accrued_nano
from service.domain.states import StatusReason
from tests.model.workers import Worker
from tests.world import World
from worker.billing.accrual import accrue_all
from worker.billing.guard import guard
from worker.pricing.refresh import refresh_quotes


@pytest.fixture
def world(database: str, tmp_path: Path) -> Iterator[World]:
    made = World(database, tmp_path / "data")
    yield made
    made.check()
    made.close()


def set_spot(world: World, hourly_nano: int) -> None:
    for offer in world.cloud.list_offers():
        if offer.market == "spot":
            world.cloud.set_price(offer.id, hourly_nano)
    refresh_quotes(world.context, world.cloud)


def test_a_price_change_splits_the_window_and_history_keeps_its_price(world: World) -> None:
    job_id, _ = world.start(cap_usd="50")
    world.accrue()
    before = world.attempts(job_id)[0].cost_nano
    world.advance(60)
    set_spot(world, 6 * 10**9)
    world.advance(60)
    world.accrue()
    added = world.attempts(job_id)[0].cost_nano - before
    expected = accrued_nano(3 * 10**9, timedelta(minutes=1)) + accrued_nano(6 * 10**9, timedelta(minutes=1))
    assert abs(added - expected) <= accrued_nano(3 * 10**9, timedelta(seconds=1)) + 2


def test_accruing_again_enters_nothing(world: World) -> None:
    world.start(cap_usd="50")
    world.advance(60)
    assert world.accrue() > 0
    assert world.accrue() == 0


@pytest.mark.parametrize("crash_at", [1, 2, 3, 4, 5, 6])
def test_an_accrual_that_dies_anywhere_counts_each_second_once(world: World, crash_at: int) -> None:
    job_id, _ = world.start(cap_usd="50")
    world.advance(60)
    Worker(world.context, world.cloud).run(lambda context, _: accrue_all(context), crash_at)
    world.accrue()
    world.check()
    with world.transaction(is_reader=True) as session:
        windows = session.scalars(select(LedgerEntry).where(LedgerEntry.job_id == job_id)).all()
    assert sum(((one.window_end - one.window_start) for one in windows), timedelta()) >= timedelta(seconds=60)
    assert world.budget(job_id).spent_nano == world.attempts(job_id)[0].cost_nano


def test_a_price_above_the_ceiling_wakes_the_job_which_leaves(world: World) -> None:
    job_id, (node,) = world.start(cap_usd="50")
    set_spot(world, 11 * 10**9)
    assert guard(world.context) == (job_id,)
    world.tick(job_id)
    assert world.job(job_id).status_reason == StatusReason.PRICE_ABOVE_CEILING
    world.beat(node)
    assert node.exit is not None, "drained, not killed"
