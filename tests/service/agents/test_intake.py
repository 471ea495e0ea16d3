"""What a heartbeat carries: metrics joined by step, replaced by a later attempt, truncated on a resume; log lines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select

from service.agents.service import receive_heartbeat
from service.context import Context
from service.db.models import Attempt, Job, LogLineRow, Metric, Project
from service.db.session import session_scope
from training.protocol.messages import Heartbeat, LogLine, MetricPoint, Phase

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def job(context: Context) -> str:
    with session_scope(context.sessions) as session:
        session.add(Project(id="prj-1", name="lab", created_at=NOW))
        session.flush()
        session.add(
            Job(
                id="job-1",
                project_id="prj-1",
                name="run",
                spec={},
                status="running",
                num_nodes=1,
                fence=1,
                created_at=NOW,
            )
        )
        session.flush()
        session.add(make_attempt(1))
    return "job-1"


def make_attempt(fence: int) -> Attempt:
    return Attempt(
        id=f"att-{fence}",
        job_id="job-1",
        fence=fence,
        state="up",
        cluster_name=f"gdw-1-{fence}",
        offer_id="local/a/x/spot",
        num_nodes=1,
        ceiling_hourly_nano=10**9,
        hourly_nano=10**9,
        on_demand_hourly_nano=10**9,
        intended_at=NOW,
        grant_until=NOW + timedelta(hours=1),
        covered_until=NOW + timedelta(hours=2),
        accrued_until=NOW,
    )


def beat(context: Context, *, fence: int = 1, seq: int, **fields: object) -> None:
    heartbeat = Heartbeat.model_validate(
        {"attempt_id": f"att-{fence}", "fence": fence, "node_rank": 0, "seq": seq, "phase": Phase.RUNNING, **fields}
    )
    with session_scope(context.sessions) as session:
        receive_heartbeat(session, f"att-{fence}", heartbeat, terms=context.settings.terms, now=NOW)


def point(step: int, **values: float) -> MetricPoint:
    return MetricPoint(step=step, at=NOW, values={name.replace("__", "/"): value for name, value in values.items()})


def read_metrics(context: Context) -> dict[int, tuple[int, dict[str, float]]]:
    with session_scope(context.sessions, is_reader=True) as session:
        return {row.step: (row.fence, row.values) for row in session.scalars(select(Metric))}


def supersede(context: Context) -> None:
    with session_scope(context.sessions) as session:
        session.get_one(Job, "job-1").fence = 2
        session.add(make_attempt(2))


@pytest.mark.usefixtures("job")
def test_values_of_one_step_are_joined_within_a_heartbeat_and_across(context: Context) -> None:
    beat(context, seq=1, metrics=(point(10, loss__train=3.0), point(10, checkpoint__step=10.0)))
    beat(context, seq=2, metrics=(point(10, loss__validation=2.5),))
    assert read_metrics(context) == {10: (1, {"loss/train": 3.0, "checkpoint/step": 10.0, "loss/validation": 2.5})}


@pytest.mark.usefixtures("job")
def test_a_later_attempt_replaces_a_step_and_truncates_what_was_lost(context: Context) -> None:
    beat(context, seq=1, metrics=(point(10, loss__train=3.0), point(20, loss__train=2.0), point(30, loss__train=1.0)))
    supersede(context)
    beat(context, fence=2, seq=1, resumed_from_step=10)
    assert sorted(read_metrics(context)) == [10]
    beat(context, fence=2, seq=2, metrics=(point(10, loss__other=9.0), point(20, loss__train=2.5)))
    assert read_metrics(context) == {10: (2, {"loss/other": 9.0}), 20: (2, {"loss/train": 2.5})}


@pytest.mark.usefixtures("job")
def test_a_repeated_heartbeat_enters_nothing_twice(context: Context) -> None:
    line = LogLine(at=NOW, rank=0, stream="stdout", text="\x1b[31mred\x1b[0m\x00")
    beat(context, seq=1, logs=(line,))
    beat(context, seq=1, logs=(line,))
    with session_scope(context.sessions, is_reader=True) as session:
        assert [row.text for row in session.scalars(select(LogLineRow))] == ["[31mred[0m"]
