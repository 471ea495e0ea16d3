"""Every job loses its node at once (row 30)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from service.db.models import Attempt, Base, Job, Node
from service.domain.states import JobStatus
from service.ids import cluster_name
from tests.world import World

NUM_JOBS = 1000
PER_MINUTE = 500


@pytest.fixture
def storm_world(sqlite_url: str, tmp_path: Path) -> Iterator[World]:
    world = World(sqlite_url, tmp_path / "data", launches_per_minute=PER_MINUTE)
    yield world
    world.close()


@pytest.mark.timeout(300)
def test_row_30_a_thousand_jobs_preempted_at_once_all_recover_at_a_bounded_rate(storm_world: World) -> None:
    world = storm_world
    world.start()
    run_many_more(world)
    world.advance(30)
    for name in world.cloud.live_clusters():
        world.cloud.preempt(name)
    recover_all(world)
    with world.transaction(is_reader=True) as session:
        assert set(session.scalars(select(Job.preemption_count))) == {1}
        assert set(session.scalars(select(Job.status))) <= {JobStatus.PROVISIONING, JobStatus.STARTING}
        intended = sorted(session.scalars(select(Attempt.intended_at).where(Attempt.fence == 2)))
    assert len(intended) == NUM_JOBS
    for first, last in zip(intended, intended[PER_MINUTE:], strict=False):
        assert (last - first).total_seconds() >= 60, "too many in a minute"
    assert set(Counter(one.job_id for one in world.cloud.launches).values()) == {2}
    assert len(world.cloud.live_clusters()) == NUM_JOBS
    world.check()


def run_many_more(world: World) -> None:
    """The one job that runs, 999 times over: its rows and its cluster under other names."""
    (request,) = world.cloud.launches
    with world.transaction() as session:
        job, attempt, node = (session.scalars(select(kind)).one() for kind in (Job, Attempt, Node))
        for number in range(1, NUM_JOBS):
            job_id, attempt_id = f"job-{number:012d}", f"att-{number:012d}"
            name = cluster_name(job_id, 1)
            copy(session, job, id=job_id)
            copy(session, attempt, id=attempt_id, job_id=job_id, cluster_name=name)
            copy(session, node, attempt_id=attempt_id)
            world.cloud.launch(replace(request, cluster_name=name, job_id=job_id))


def copy(session: Session, row: Base, **changes: Any) -> None:
    values = {column.name: getattr(row, column.key) for column in row.__table__.columns}
    session.execute(insert(type(row)).values(values | changes))


def recover_all(world: World) -> None:
    """Every job is found to have lost its node; its zones are passed over for a while; then launches are rationed."""
    for job_id in find_waiting(world):
        any(not world.tick(job_id) for _ in range(3))  # ended, gone, and launched or told to wait
    world.advance(world.context.settings.terms.unavailable.total_seconds() + 1)
    for _ in range(6):
        for job_id in find_waiting(world):
            world.tick(job_id)
        world.advance(61)
    assert not find_waiting(world), "some never launched"


def find_waiting(world: World) -> list[str]:
    with world.transaction(is_reader=True) as session:
        return list(session.scalars(select(Job.id).where(Job.fence < 2).order_by(Job.due_at)))
