"""The database dies and comes back; clocks are wrong (rows 10, 11, 14)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError

from service.db.claims import CLAIM
from service.db.models import Job
from service.db.session import database_now, is_away, session_scope
from service.domain.states import JobStatus
from tests.faults.servers import MortalPostgres, run_mortal_postgres
from tests.model.workers import Worker
from tests.world import World


@pytest.fixture
def server() -> Iterator[MortalPostgres]:
    with run_mortal_postgres() as server:
        yield server


@pytest.fixture
def mortal_world(server: MortalPostgres, tmp_path: Path) -> Iterator[World]:
    world = World(server.url, tmp_path / "data")
    yield world
    world.close()


def test_rows_10_and_11_a_database_that_dies_costs_time_and_nothing_else(
    mortal_world: World, server: MortalPostgres
) -> None:
    world = mortal_world
    job_id, (node,) = world.start(cap_usd="50")
    assert world.save(node)
    before = world.budget(job_id).reserved_nano

    # Row 10: in the middle of a transaction that has written already.
    with pytest.raises(OperationalError) as raised:
        die_midway(world, server)
    assert is_away(raised.value)

    # Row 11: away for five minutes, while the node trains on within its grant.
    for _ in range(10):
        world.clock.now += timedelta(seconds=30)
        node.step += 1
        with pytest.raises(OperationalError):
            world.deliver(node.next_heartbeat())
    with pytest.raises(OperationalError):
        world.sweep()
    assert world.clock.now < node.grant_until
    server.start()

    world.return_from_outage()
    assert (world.budget(job_id).reserved_nano, world.job(job_id).fence) == (before, 1), "no partial state"
    for _ in range(3):
        world.sweep()
        world.check()
        assert world.job(job_id).status == JobStatus.RUNNING, "five minutes of silence were the service's own"
        world.advance(1)
    assert world.beat(node) is not None
    assert world.save(node)
    job = world.job(job_id)
    assert (job.fence, job.preemption_count, job.fault_count, job.checkpoint_step) == (1, 0, 0, node.step)
    assert len(world.cloud.launches) == 1
    world.drain()
    assert world.job(job_id).status == JobStatus.SUCCEEDED


def die_midway(world: World, server: MortalPostgres) -> None:
    with world.transaction() as session:
        session.execute(text("UPDATE budgets SET reserved_nano = reserved_nano + 1"))
        session.execute(text("UPDATE jobs SET fence = fence + 1"))
        server.kill()
        session.execute(select(Job))


def test_row_11_after_the_return_silence_counts_again(world: World) -> None:
    job_id, (_node,) = world.start(cap_usd="50")
    world.advance(300, is_present=False)
    world.return_from_outage()
    world.sweep()
    assert world.job(job_id).status == JobStatus.RUNNING
    world.advance(world.context.settings.silence.total_seconds() + 6)
    world.sweep()
    assert world.attempts(job_id)[0].cause == "silent"


@pytest.mark.parametrize("hours", [-1, 1])
def test_row_14_a_worker_whose_clock_is_an_hour_off_takes_no_claim_that_is_held(world: World, hours: int) -> None:
    job_id = world.submit(cap_usd="50")
    holder = Worker(world.context, world.cloud)
    holder.stall(job_id, 3)
    assert holder.is_stalled
    shifted = replace(world.context, clock=lambda: world.clock.now + timedelta(hours=hours))
    assert not Worker(shifted, world.cloud).tick(job_id) or len(world.attempts(job_id)) <= 1
    assert len(world.cloud.launches) == 0, "only the holder may launch"
    with session_scope(world.context.sessions) as session:
        claimed_until = session.get_one(Job, job_id).claimed_until
        assert claimed_until is not None
        assert timedelta(0) < claimed_until - database_now(session) <= CLAIM, "timed by the database"
    holder.resume()
    world.drain()
    assert len(world.cloud.launches) == 1
    assert world.job(job_id).status == JobStatus.SUCCEEDED


@pytest.mark.parametrize("hours", [-1, 1])
def test_row_14_a_clock_that_jumps_doubles_nothing(world: World, hours: int) -> None:
    """The books stay whole; a jump forward may end a grant early, a jump back may delay."""
    job_id, _ = world.start(cap_usd="50")
    world.advance(30)
    world.accrue()
    world.clock.now += timedelta(hours=hours)
    for _ in range(3):
        world.accrue()
        world.sweep()
        world.check()
    world.clock.now -= timedelta(hours=hours)
    world.drain()
    assert len([one for one in world.attempts(job_id) if one.state != "gone"]) == 0
    assert world.job(job_id).status == JobStatus.SUCCEEDED
