"""Nodes that are taken away, and checkpoints that are torn (rows 21-24, 26)."""

from __future__ import annotations

import obstore
import pytest

from service.domain.states import AttemptCause, JobStatus
from tests.world import SimNode, World
from training.protocol.bucket import checkpoint_prefix
from training.protocol.manifest import MANIFEST_NAME, Manifest, ManifestFile, digest
from training.protocol.messages import CorruptCheckpoint

SHARDS = {"model.safetensors": b"w" * 4096, "optimizer.safetensors": b"m" * 4096}


def write_shards(world: World, node: SimNode, step: int, names: tuple[str, ...] = tuple(SHARDS)) -> str:
    prefix = checkpoint_prefix(node.spec.job_id, step, node.spec.fence)
    for name in names:
        obstore.put(world.context.bucket, f"{prefix}/{name}", SHARDS[name])
    return prefix


def write_manifest(world: World, node: SimNode, step: int) -> str:
    """The manifest of all shards, whatever was uploaded of them; its digest."""
    files = tuple(ManifestFile(path=name, size_bytes=len(data), sha256=digest(data)) for name, data in SHARDS.items())
    data = Manifest(step=step, fence=node.spec.fence, world_size=1, tokens=step, files=files).to_bytes()
    prefix = checkpoint_prefix(node.spec.job_id, step, node.spec.fence)
    obstore.put(world.context.bucket, f"{prefix}/{MANIFEST_NAME}", data)
    return digest(data)


def start_with_checkpoint(world: World, step: int = 10) -> tuple[str, SimNode]:
    job_id, (node,) = world.start(cap_usd="50")
    node.step = step
    assert world.save(node)
    return job_id, node


def recover(world: World, job_id: str) -> SimNode:
    """Until the next attempt's cluster is up; its node."""
    fence = world.job(job_id).fence
    world.run(job_id, until=lambda: world.job(job_id).fence > fence and bool(world.live_nodes(job_id)))
    (node,) = world.live_nodes(job_id)
    assert len(world.cloud.live_clusters()) == 1
    return node


@pytest.mark.parametrize("moment", ["set-up", "step", "restart"])
def test_row_21_a_preemption_at_any_moment_resumes_from_the_last_commit(world: World, moment: str) -> None:
    job_id, node = start_with_checkpoint(world)
    if moment != "step":
        world.cloud.preempt(node.cluster_name)
        node = recover(world, job_id)
        if moment == "restart":
            world.beat(node)
    world.cloud.preempt(node.cluster_name)
    again = recover(world, job_id)
    assert [one.step for one in again.spec.candidates] == [10]
    job = world.job(job_id)
    assert (job.preemption_count, job.fault_count) == (1 if moment == "step" else 2, 0)
    assert {one.cause for one in world.attempts(job_id) if one.cause} == {AttemptCause.PREEMPTED}
    world.drain()
    assert world.job(job_id).status == JobStatus.SUCCEEDED


def test_row_22_preempted_during_the_upload_the_older_checkpoint_is_still_the_latest(world: World) -> None:
    job_id, node = start_with_checkpoint(world)
    write_shards(world, node, 20, ("model.safetensors",))
    world.cloud.preempt(node.cluster_name)
    assert [one.step for one in recover(world, job_id).spec.candidates] == [10]
    assert world.job(job_id).checkpoint_step == 10


def test_row_22_a_checkpoint_complete_but_for_its_announcement_is_not_lost(world: World) -> None:
    """The node died between the manifest and the register: the service imports it before it raises the fence."""
    job_id, node = start_with_checkpoint(world)
    write_shards(world, node, 20)
    manifest_sha256 = write_manifest(world, node, 20)
    world.cloud.preempt(node.cluster_name)
    candidates = recover(world, job_id).spec.candidates
    assert [(one.step, one.fence) for one in candidates] == [(20, 1), (10, 1)]
    assert candidates[0].manifest_sha256 == manifest_sha256
    assert world.job(job_id).checkpoint_step == 20


def test_row_23_killed_without_notice_a_job_loses_no_more_than_an_interval(world: World) -> None:
    job_id, node = start_with_checkpoint(world, step=40)
    node.step = 49  # one short of the next save
    world.beat(node)
    world.cloud.preempt(node.cluster_name)
    again = recover(world, job_id)
    world.beat(again)
    world.beat(again)
    (lost,) = world.events("attempt.preempted", job_id)
    assert (lost.data["at_step"], lost.data["checkpoint_step"], lost.data["has_notice"]) == (49, 40, False)
    assert world.attempts(job_id)[-1].resumed_from_step == 40


def test_row_24_a_corrupt_checkpoint_falls_back_to_the_one_before_and_is_told(world: World) -> None:
    job_id, node = start_with_checkpoint(world)
    node.step = 20
    world.save(node)
    world.cloud.preempt(node.cluster_name)
    again = recover(world, job_id)
    again.corrupt = (CorruptCheckpoint(step=20, fence=1, reason="model.safetensors: sha256 differs"),)
    world.beat(again)
    assert world.job(job_id).checkpoint_step == 10
    (event,) = world.events("checkpoint.corrupt", job_id)
    assert (event.data["step"], event.data["latest_step"]) == (20, 10)
    world.cloud.preempt(again.cluster_name)
    assert [one.step for one in recover(world, job_id).spec.candidates] == [10]


@pytest.mark.parametrize("damage", ["missing shard", "flipped bit", "torn manifest"])
def test_row_26_a_manifest_whose_shards_do_not_verify_is_never_advertised(world: World, damage: str) -> None:
    job_id, node = start_with_checkpoint(world)
    prefix = write_shards(world, node, 20, ("model.safetensors",) if damage == "missing shard" else tuple(SHARDS))
    write_manifest(world, node, 20)
    if damage == "flipped bit":
        flipped = bytes([SHARDS["model.safetensors"][0] ^ 1]) + SHARDS["model.safetensors"][1:]
        obstore.put(world.context.bucket, f"{prefix}/model.safetensors", flipped)
    if damage == "torn manifest":
        obstore.put(world.context.bucket, f"{prefix}/{MANIFEST_NAME}", b'{"version": 1, "step"')
    world.cloud.preempt(node.cluster_name)
    assert [one.step for one in recover(world, job_id).spec.candidates] == [10]
    assert world.job(job_id).checkpoint_step == 10
