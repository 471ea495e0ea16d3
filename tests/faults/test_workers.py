"""Workers that die, stop, repeat or never hear of anything (rows 2, 3, 4, 5, 7, 9, 46)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from service.domain.states import JobStatus
from service.jobs.wishes import cancel_job
from tests.model.workers import Worker
from tests.world import World
from worker.reconcile.tick import reconcile_job


def find_launch(world: World) -> int:
    """The crossing right before a new job's launch, found by a rehearsal so that no number is guessed."""
    worker = Worker(world.context, world.cloud)
    rehearsal = world.submit()
    worker.tick(rehearsal)
    world.wish(cancel_job, rehearsal, is_now=True)
    world.drain()
    return worker.crossings_before["launch"]


def dump(world: World) -> list[object]:
    """Every row that a tick may write."""
    tables = ("jobs", "attempts", "budgets", "ledger_entries", "events", "offers", "checkpoints")
    with world.transaction(is_reader=True) as session:
        return [sorted(map(repr, session.execute(text(f"SELECT * FROM {table}")))) for table in tables]  # noqa: S608


def test_row_02_a_job_whose_wake_up_was_never_sent_is_found_by_the_sweep(world: World) -> None:
    job_id = world.submit()
    assert world.context.settings.sweep.total_seconds() <= 5
    assert world.sweep() == 1
    assert len(world.attempts(job_id)) == 1
    world.drain()
    assert world.job(job_id).status == JobStatus.SUCCEEDED


def test_row_03_a_worker_killed_before_the_launch_leaves_an_intent_that_the_next_one_launches(world: World) -> None:
    at_launch = find_launch(world)
    count = len(world.cloud.launches)
    job_id = world.submit(cap_usd="50")
    assert not Worker(world.context, world.cloud).tick(job_id, crash_at=at_launch)
    (attempt,) = world.attempts(job_id)
    assert (attempt.state, len(world.cloud.launches)) == ("intended", count)
    assert not world.tick(job_id), "the dead worker's claim still holds"
    world.expire_claims()
    world.check()
    world.drain()
    assert len(world.cloud.launches) == count + 1
    assert world.job(job_id).status == JobStatus.SUCCEEDED


def test_row_04_a_cluster_launched_by_a_worker_that_died_at_once_is_adopted(world: World) -> None:
    at_launch = find_launch(world)
    count = len(world.cloud.launches)
    job_id = world.submit(cap_usd="50")
    assert not Worker(world.context, world.cloud).tick(job_id, crash_at=at_launch + 1)
    assert len(world.cloud.launches) == count + 1
    created_at = world.clock.now
    world.advance(61)
    world.expire_claims()
    world.tick(job_id)
    (attempt,) = world.attempts(job_id)
    assert attempt.launched_at == created_at, "it costs from when the provider made it"
    world.drain()
    assert len(world.cloud.launches) == count + 1
    assert [one.fence for one in world.attempts(job_id)] == [1]
    assert world.job(job_id).status == JobStatus.SUCCEEDED


@pytest.mark.parametrize("stall_at", [1, 2, 3, 4])
def test_row_05_a_worker_that_wakes_past_its_claim_writes_nothing(world: World, stall_at: int) -> None:
    job_id = world.submit(cap_usd="50")
    sleeper = Worker(world.context, world.cloud)
    sleeper.stall(job_id, stall_at + 2)
    assert sleeper.is_stalled
    world.expire_claims()
    world.get_running(job_id)
    before = dump(world)
    sleeper.resume()
    assert dump(world) == before
    world.reap()
    assert len(world.cloud.live_clusters()) == 1
    world.drain()
    assert world.job(job_id).status == JobStatus.SUCCEEDED


def test_row_07_a_flushed_broker_costs_nothing_but_time(world: World) -> None:
    """No message of any kind was ever delivered: all of these lives are lived by the sweep alone."""
    jobs = [world.submit(cap_usd="50") for _ in range(3)]
    world.run_nodes()
    world.drain()
    assert {world.job(job_id).status for job_id in jobs} == {JobStatus.SUCCEEDED}


def test_row_09_messages_repeated_and_out_of_order_have_one_effect(world: World) -> None:
    job_id = world.submit(cap_usd="50")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: reconcile_job(world.context, world.cloud, job_id), range(24)))
    assert len(world.cloud.launches) == 1
    assert len(world.attempts(job_id)) == 1
    world.get_running(job_id)
    (node,) = world.live_nodes(job_id)
    node.step = 7
    world.beat(node)
    world.advance(400)
    world.beat(node)
    reserved = world.attempts(job_id)[0].reserved_nano
    for heartbeat in (*node.sent, *reversed(node.sent)):
        world.deliver(heartbeat)
    (attempt,) = world.attempts(job_id)
    assert (attempt.reserved_nano, attempt.last_step) == (reserved, 7)
    assert len(world.events("attempt.first_step", job_id)) == 1
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: world.accrue(), range(16)))
    world.check()
    world.drain()
    assert world.job(job_id).status == JobStatus.SUCCEEDED


@pytest.mark.parametrize("is_now", [True, False])
def test_row_46_a_cancel_that_races_with_a_launch_leaves_no_cluster(world: World, is_now: bool) -> None:
    at_launch = find_launch(world)
    job_id = world.submit(cap_usd="50")
    launcher = Worker(world.context, world.cloud)
    launcher.stall(job_id, at_launch)
    assert launcher.is_stalled
    assert world.attempts(job_id)[0].state == "intended"
    world.wish(cancel_job, job_id, is_now=is_now)
    world.expire_claims()
    world.run(job_id, until=lambda: world.job(job_id).status == JobStatus.CANCELLED)
    assert not world.cloud.live_clusters()
    launcher.resume()
    assert world.cloud.live_clusters(), "the launch came through after all"
    (node,) = world.live_nodes(job_id)
    assert world.beat(node) is None, "and its node is barred"
    world.reap()
    assert not world.cloud.live_clusters()
    assert world.job(job_id).status == JobStatus.CANCELLED
