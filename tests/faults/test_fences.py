"""Old fences, lost heartbeats, ends told twice (rows 27, 28, 29)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.checkpoints.service import CheckpointConflict, Fenced, NewCheckpoint, register
from service.domain.states import EndReason, JobStatus
from service.jobs.wishes import cancel_job
from tests.world import World
from training.protocol.messages import CHECKPOINTS_PATH, HEARTBEAT_PATH, ExitKind
from worker.provision.protocol import ProviderUnavailable


def test_row_27_a_node_that_nobody_hears_stops_at_its_grants_end_and_cannot_commit_after(world: World) -> None:
    """Neither its heartbeats nor the provider get through: no replacement before grant, drain and margin are over."""
    job_id, (cut_off,) = world.start(cap_usd="50")
    world.save(cut_off)
    grant_until = world.attempts(job_id)[0].grant_until
    terms = world.context.settings.terms
    cut_off.grant_until += timedelta(hours=9)  # the worst node there is: it does not even keep to its grant
    world.cloud.fail_next("observe", ProviderUnavailable("503"), times=10_000)
    world.cloud.fail_next("terminate", ProviderUnavailable("503"), times=10_000)
    while world.clock.now <= grant_until + terms.drain + terms.margin:
        world.sweep()
        assert len(world.cloud.live_clusters()) == 1, "two could run at once"
        world.advance(29)
    world.run(job_id, until=lambda: world.job(job_id).fence == 2)
    cut_off.step = 99
    assert not world.save(cut_off)
    with pytest.raises(Fenced):
        world.deliver(cut_off.next_heartbeat())
    assert world.job(job_id).checkpoint_step == 1
    assert len(world.events("attempt.termination_unconfirmed", job_id)) == 1


def test_row_28_an_old_fence_gets_409_on_every_verb(world: World) -> None:
    job_id, (old,) = world.start(cap_usd="50")
    world.cloud.preempt(old.cluster_name)
    world.run(job_id, until=lambda: world.job(job_id).fence == 2 and bool(world.live_nodes(job_id)))
    token = world.context.sealer.node_token(old.spec.attempt_id)
    registration = {
        "attempt_id": old.spec.attempt_id,
        "fence": 1,
        "step": 50,
        "manifest_sha256": "a" * 64,
        "size_bytes": 1,
        "world_size": 1,
        "verified_at": world.clock.now.isoformat(),
    }
    heartbeat = old.next_heartbeat().model_dump(mode="json")
    app = create_app(world.context.settings, clock=world.clock, wake=lambda _job_id: None)
    client = TestClient(app, headers={"Authorization": f"Bearer {token}"})
    pretender = {"attempt_id": old.spec.attempt_id, "fence": 2}
    for path, body in ((HEARTBEAT_PATH, heartbeat), (CHECKPOINTS_PATH, registration)):
        for lie in ({}, pretender):
            answer = client.post(path, json={**body, **lie})
            assert (answer.status_code, answer.json()["code"]) == (409, "fenced")
    app.state.context.sessions.kw["bind"].dispose()
    assert world.job(job_id).checkpoint_step is None


def test_row_28_the_register_itself_bars_an_old_fence_and_another_digest(world: World) -> None:
    job_id, (node,) = world.start(cap_usd="50")
    world.save(node)
    new = NewCheckpoint(
        job_id=job_id,
        step=node.step,
        fence=1,
        manifest_sha256="b" * 64,
        size_bytes=1,
        val_loss=None,
        world_size=1,
        tokens=0,
        verified_at=world.clock.now,
    )
    with world.transaction() as session, pytest.raises(CheckpointConflict):
        register(session, new, now=world.clock.now)
    world.cloud.preempt(node.cluster_name)
    world.run(job_id, until=lambda: world.job(job_id).fence == 2)
    with world.transaction() as session, pytest.raises(Fenced):
        register(session, replace(new, step=50), now=world.clock.now)
    assert world.job(job_id).checkpoint_step == node.step


@pytest.mark.parametrize("first", ["completed", "cancelled"])
def test_row_29_the_first_end_wins(world: World, first: str) -> None:
    job_id, (node,) = world.start(cap_usd="50")
    if first == "completed":
        world.finish(node, ExitKind.COMPLETED)
        world.deliver(node.sent[-1])  # told twice
        world.tick(job_id)
        world.wish(cancel_job, job_id, is_now=True)
    else:
        world.wish(cancel_job, job_id, is_now=False)
        world.tick(job_id)
        world.finish(node, ExitKind.COMPLETED)
        world.deliver(node.sent[-1])
    world.drain()
    job = world.job(job_id)
    expected = (
        (JobStatus.SUCCEEDED, EndReason.COMPLETED)
        if first == "completed"
        else (JobStatus.CANCELLED, EndReason.CANCELLED)
    )
    assert (job.status, job.end_reason) == expected
    assert len(world.events(f"job.{job.status}", job_id)) == 1
    with pytest.raises(Fenced):
        world.deliver(node.sent[-1])


def test_row_29_a_users_error_ends_the_job_and_is_told_with_its_rank(world: World) -> None:
    job_id, (node,) = world.start(cap_usd="50")
    world.finish(node, ExitKind.USER_ERROR)
    world.drain()
    job = world.job(job_id)
    assert (job.status, job.end_reason, job.user_error_count) == (JobStatus.FAILED, EndReason.USER_ERROR, 1)
    assert job.error is not None
    assert (job.error["code"], job.error["exit_code"]) == ("user_error", 1)
    (event,) = world.events("training_error", job_id)
    assert event.data == job.error
    assert len(world.attempts(job_id)) == 1, "never relaunched blindly"
