"""Top-ups: what they clear, what they re-arm, how far a cap may fall."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from service.budgets.service import settle, top_up
from service.db.models import Job
from tests.world import PROJECT, World


@pytest.fixture
def world(sqlite_url: str, tmp_path: Path) -> Iterator[World]:
    made = World(sqlite_url, tmp_path / "data")
    yield made
    made.close()


def test_a_top_up_clears_the_budget_hold_alone_and_wakes_the_job(world: World) -> None:
    job_id = world.submit(cap_usd="5")
    with world.transaction() as session:
        session.execute(update(Job).values(has_budget_hold=True, has_user_hold=True, due_at=None))
    with world.transaction() as session:
        top_up(session, world.budget(job_id).id, 10**9, now=world.clock.now)
    job = world.job(job_id)
    assert (job.has_budget_hold, job.has_user_hold) == (False, True)
    assert job.due_at == world.clock.now


def test_a_cap_never_falls_below_what_is_spent_and_held(world: World) -> None:
    job_id, _ = world.start(cap_usd="20")
    budget = world.budget(job_id)
    free = budget.cap_nano - budget.spent_nano - budget.reserved_nano
    with world.transaction() as session:
        top_up(session, budget.id, -free, now=world.clock.now)
    with pytest.raises(ValueError, match="below what is spent"), world.transaction() as session:
        top_up(session, budget.id, -1, now=world.clock.now)
    world.check()


def test_thresholds_ahead_are_told_again_those_behind_are_not(world: World) -> None:
    job_id = world.submit(cap_usd="10")
    budget_id = world.budget(job_id).id

    def spend(amount: int) -> None:
        with world.transaction() as session:
            settle(session, PROJECT, job_id, spent_nano=amount, released_nano=0, now=world.clock.now)

    spend(85 * 10**8)
    with world.transaction() as session:
        top_up(session, budget_id, 5 * 10**9, now=world.clock.now)  # 8.5 of 15: 50 % is behind, 80 % ahead again
    spend(10**8)
    spend(4 * 10**9)
    told = [one.data["threshold_percent"] for one in world.events("budget.threshold_reached")]
    assert told == [50, 80, 80]
