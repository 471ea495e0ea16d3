"""Heartbeats: repeats, grants and their money, commands."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from service.checkpoints.service import Fenced
from service.jobs.wishes import ask_for_checkpoint, cancel_job
from tests.world import World
from training.protocol.messages import Command


@pytest.fixture
def world(database: str, tmp_path: Path) -> Iterator[World]:
    made = World(database, tmp_path / "data")
    yield made
    made.check()
    made.close()


def test_a_grant_is_renewed_at_half_and_its_money_is_set_aside_first(world: World) -> None:
    job_id, (node,) = world.start(cap_usd="50")
    terms, first = world.context.settings.terms, world.attempts(job_id)[0]
    while first.grant_until - world.clock.now > terms.grant / 2:
        world.advance(60)
        world.beat(node)
    after = world.attempts(job_id)[0]
    assert after.grant_until > first.grant_until
    assert after.reserved_nano > first.reserved_nano
    assert node.grant_until - world.clock.now <= terms.grant


def test_a_repeated_or_late_heartbeat_records_nothing(world: World) -> None:
    job_id, (node,) = world.start(cap_usd="50")
    node.step = 9
    world.beat(node)
    world.deliver(node.sent[0])
    assert world.attempts(job_id)[0].last_step == 9


def test_a_node_of_no_gang_is_refused(world: World) -> None:
    _, (node,) = world.start(cap_usd="50")
    with pytest.raises(Fenced, match="not part of"):
        world.deliver(node.next_heartbeat().model_copy(update={"node_rank": 1}))


def test_a_wanted_checkpoint_is_commanded_once(world: World) -> None:
    job_id, (node,) = world.start(cap_usd="50")
    world.wish(ask_for_checkpoint, job_id)
    replies = [world.beat(node), world.beat(node)]
    assert [reply.commands for reply in replies if reply] == [(Command.CHECKPOINT,), ()]


def test_a_cancel_reaches_the_node_as_a_drain_and_gives_no_more_time(world: World) -> None:
    job_id, (node,) = world.start(cap_usd="50")
    world.wish(cancel_job, job_id, is_now=False)
    before = world.attempts(job_id)[0].grant_until
    world.clock.now = before - timedelta(seconds=60)
    world.be_present()
    reply = world.deliver(node.next_heartbeat())
    assert world.attempts(job_id)[0].grant_until == before
    world.tick(job_id)
    reply = world.deliver(node.next_heartbeat())
    assert reply.commands == (Command.DRAIN,)
