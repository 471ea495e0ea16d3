"""The orphan sweep: what no live intent owns is ended and paid for, whatever dies meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from service.db.models import LedgerEntry
from service.domain.money import accrued_nano
from tests.model.workers import Worker
from tests.world import World
from worker.provision.protocol import ProviderUnavailable
from worker.sweep.orphans import CATEGORY, sweep_orphans


@pytest.fixture
def world(database: str, tmp_path: Path) -> Iterator[World]:
    made = World(database, tmp_path / "data")
    yield made
    made.close()


def make_orphan(world: World) -> str:
    """A job of whose cluster the provider said that it was gone, and it was not; the orphan costs $3 an hour."""
    job_id, (node,) = world.start(cap_usd="50")
    world.cloud.preempt(node.cluster_name)
    request = world.cloud.launches[-1]
    world.advance(700)
    world.run(job_id, until=lambda: world.attempts(job_id)[0].state == "gone")
    world.cloud.launch(request)
    return job_id


def entries(world: World) -> list[LedgerEntry]:
    with world.transaction(is_reader=True) as session:
        found = session.scalars(select(LedgerEntry).where(LedgerEntry.category == CATEGORY).order_by(LedgerEntry.id))
        return list(found)


def check_cost(world: World) -> None:
    """Every moment once, from where its attempt stopped counting; a nano-dollar may be lost to each rounding."""
    found = entries(world)
    span = world.clock.now - found[0].window_start
    assert span > timedelta(seconds=99)
    assert 0 <= accrued_nano(3 * 10**9, span) - sum(one.amount_nano for one in found) <= len(found)


def test_an_orphan_is_ended_and_its_time_paid_for_once(world: World) -> None:
    job_id = make_orphan(world)
    world.advance(100)
    sweep_orphans(world.context, world.cloud)
    sweep_orphans(world.context, world.cloud)
    check_cost(world)
    assert len(world.events("orphan.reaped", job_id)) == 1
    world.check()


def test_an_orphan_that_does_not_end_is_counted_on(world: World) -> None:
    make_orphan(world)
    world.cloud.fail_next("terminate", ProviderUnavailable("503"), times=2)
    for _ in range(3):
        world.advance(100)
        sweep_orphans(world.context, world.cloud)
    check_cost(world)
    world.check()


@pytest.mark.parametrize("crash_at", range(1, 10))
def test_an_orphan_whose_reaper_dies_is_neither_free_nor_paid_for_twice(world: World, crash_at: int) -> None:
    make_orphan(world)
    world.advance(100)
    Worker(world.context, world.cloud).run(sweep_orphans, crash_at)
    world.reap()
    check_cost(world)
    world.check()


def test_a_launch_in_progress_is_no_orphan(world: World) -> None:
    job_id = world.submit(cap_usd="50")
    world.tick(job_id)
    assert world.cloud.live_clusters()
    assert sweep_orphans(world.context, world.cloud) == 0
    assert world.cloud.live_clusters()
