"""Checkpoints that two nodes save in shards: two real agents, one service, one folder as the bucket."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.training.node.conftest import WAIT_SECONDS, Bench, wait_until
from tests.training.node.service_double import ImdsDouble, ServiceDouble
from training.node.gang import MAX_WAITING_SAVES, build_part, check_share, choose_for_gang, describe_placed, place_files
from training.node.saved import SavedInvalid
from training.protocol.launch_spec import Candidate
from training.protocol.manifest import Manifest, ManifestFile
from training.protocol.messages import ExitKind

SHARDED = Path(__file__).with_name("sharded_trainer.py")
NODE_FILES = {"all-nodes", "step-1.txt", "shards/weights.bin"}


class Gang:
    """Two nodes of one attempt, on benches of their own that share a service and a bucket."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.nodes = [Bench(folder=bench.folder / f"n{k}", service=bench.service, imds=bench.imds) for k in range(2)]
        for node in self.nodes:
            node.folder.mkdir()

    def start(self, node: int, run: str, *, num_nodes: int = 2, **changes: Any) -> subprocess.Popen[bytes]:
        shape = {"node_rank": node, "num_nodes": num_nodes, "checkpoint_root": f"file://{self.bench.bucket_folder}"}
        return self.nodes[node].start(self.nodes[node].spec(run=run, **shape, **changes))

    def drain(self, *agents: subprocess.Popen[bytes]) -> list[int]:
        for agent in agents:
            agent.send_signal(signal.SIGTERM)
        return [agent.wait(WAIT_SECONDS) for agent in agents]

    def texts(self, node: int) -> list[str]:
        heartbeats = [one for one in tuple(self.bench.service.heartbeats) if one.node_rank == node]
        return [line.text for heartbeat in heartbeats for line in heartbeat.logs]

    def is_told(self, node: int, what: str) -> bool:
        return any(what in text for text in self.texts(node))

    def last(self, node: int):
        return [one for one in tuple(self.bench.service.heartbeats) if one.node_rank == node][-1]

    def checkpoint(self, step: int, fence: int = 1) -> Path:
        return self.bench.bucket_folder / f"jobs/job-1/ckpt/{step}-{fence}"

    def resumed_files(self, node: int, name: str) -> dict[str, bytes]:
        folder = self.nodes[node].node / "resume" / name
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def gang(bench: Bench) -> Iterator[Gang]:
    made = Gang(bench)
    yield made
    for node in made.nodes:
        for agent in node.agents:
            if agent.poll() is None:
                agent.kill()
                agent.wait()


def sharded(last: int = 10, every: int = 10, left_out: str = "") -> str:
    return f"exec python {SHARDED} {last} {every} {left_out}"


@pytest.fixture(scope="module")
def first_attempt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gang]:
    """Two nodes that saved at step 10 and, drained, at step 1000."""
    bench = Bench(folder=tmp_path_factory.mktemp("first"), service=ServiceDouble(), imds=ImdsDouble())
    made = Gang(bench)
    agents = made.start(0, sharded()), made.start(1, sharded())
    wait_until(lambda: (10, 1) in bench.service.registered, "the first checkpoint")
    assert made.drain(*agents) == [75, 75]
    yield made
    for node in made.nodes:
        for agent in node.agents:
            agent.kill()
            agent.wait()
    bench.close()


@pytest.fixture
def trained(gang: Gang, first_attempt: Gang) -> tuple[Candidate, ...]:
    """A copy of that attempt's bucket; its candidates, newest first."""
    shutil.copytree(first_attempt.bench.bucket_folder, gang.bench.bucket_folder)
    registered = sorted(first_attempt.bench.service.registered.items(), reverse=True)
    return tuple(Candidate(step=step, fence=fence, manifest_sha256=sha256) for (step, fence), sha256 in registered)


def test_every_nodes_shard_is_in_the_one_manifest(first_attempt: Gang) -> None:
    assert first_attempt.bench.committed() == [(10, 1), (1000, 1)]
    assert sorted(first_attempt.bench.service.registered) == [(10, 1), (1000, 1)]
    manifest = Manifest.model_validate_json((first_attempt.checkpoint(1000) / "manifest.json").read_bytes())
    own = {"all-nodes", "common.txt", "step-0.txt", "shards/weights.bin"}
    assert {file.path for file in manifest.files} == own | {f"node-1/{name}" for name in NODE_FILES}
    assert manifest.world_size == 2


def test_each_node_reports_its_exit_after_its_share_is_safe(first_attempt: Gang) -> None:
    for node in range(2):
        report = first_attempt.last(node).exit
        assert report is not None
        assert report.kind is ExitKind.DRAINED
        assert not first_attempt.is_told(node, "could not be uploaded")
    assert first_attempt.last(0).last_checkpoint_step == 1000


def test_each_node_resumes_from_its_own_shard(gang: Gang, trained: tuple[Candidate, ...]) -> None:
    for node in range(2):
        gang.start(node, sharded(), fence=2, candidates=trained)
    wait_until(lambda: len(_resumed(gang)) == 2, "both resumed")
    of_node_0, of_node_1 = (gang.resumed_files(node, "1000-1") for node in range(2))
    manifests = [Manifest.model_validate_json(files.pop("manifest.json")) for files in (of_node_0, of_node_1)]
    assert set(of_node_0) == {"all-nodes", "common.txt", "step-0.txt", "shards/weights.bin"}
    assert set(of_node_1) == {*of_node_0, "step-1.txt"}
    assert of_node_0["shards/weights.bin"][:1] == b"\x00"
    assert of_node_1["shards/weights.bin"][:1] == b"\x01", "a node's own file wins over node 0's of the same name"
    for manifest, files in zip(manifests, (of_node_0, of_node_1), strict=True):
        assert {file.path: file.size_bytes for file in manifest.files} == {name: len(it) for name, it in files.items()}


def _resumed(gang: Gang) -> dict[int, int]:
    """The step that each node resumed from, of those that run ranks."""
    steps = {one.node_rank: one.resumed_from_step for one in tuple(gang.bench.service.heartbeats)}
    return {node: step for node, step in steps.items() if step is not None}


@pytest.mark.parametrize(("finder", "damaged"), [(1, "node-1/shards/weights.bin"), (0, "shards/weights.bin")])
def test_a_flipped_bit_in_one_shard_makes_all_nodes_fall_back(
    gang: Gang, trained: tuple[Candidate, ...], finder: int, damaged: str
) -> None:
    shard = gang.checkpoint(1000) / damaged
    data = shard.read_bytes()
    shard.write_bytes(bytes([data[0], data[1] ^ 1]) + data[2:])
    for node in range(2):
        gang.start(node, sharded(), fence=2, candidates=trained)
    wait_until(lambda: len(_resumed(gang)) == 2, "both resumed")
    assert _resumed(gang) == {0: 10, 1: 10}
    corrupt = {node: [found.step for found in gang.last(node).corrupt_checkpoints] for node in range(2)}
    assert corrupt == {finder: [1000], 1 - finder: []}
    assert gang.is_told(1 - finder, f"checkpoint 1000-1 is not usable: node {finder} found its share damaged")


def test_another_number_of_nodes_finds_every_shard_in_its_folder(gang: Gang, trained: tuple[Candidate, ...]) -> None:
    gang.start(0, sharded(), num_nodes=1, fence=2, candidates=trained)
    wait_until(lambda: _resumed(gang), "resumed")
    files = gang.resumed_files(0, "1000-1")
    assert {name for name in files if name.startswith("node-")} == {f"node-1/{name}" for name in NODE_FILES}
    assert {"step-0.txt", "common.txt", "all-nodes"} <= set(files)


def test_a_part_that_never_comes_leaves_the_older_checkpoint_the_latest(gang: Gang) -> None:
    agents = gang.start(0, sharded(20, left_out="1:20")), gang.start(1, sharded(20, left_out="1:20"))
    wait_until(lambda: gang.is_told(0, "checkpoint 20 waits for its part from node 1"), "the reason")
    assert gang.bench.committed() == [(10, 1)]
    assert gang.drain(*agents) == [75, 75]
    assert gang.bench.committed() == [(10, 1), (1000, 1)], "the next save supersedes it"
    assert gang.is_told(0, "skipped for a newer one: 20")


def test_a_drain_ends_in_its_bound_though_a_part_is_missing(gang: Gang) -> None:
    terms = {"drain": 2}
    agents = [gang.start(node, sharded(left_out="1:1000"), terms=terms) for node in range(2)]
    wait_until(lambda: (10, 1) in gang.bench.service.registered, "the first checkpoint")
    assert gang.drain(*agents) == [75, 75]
    assert gang.bench.committed() == [(10, 1)]
    assert gang.is_told(0, "checkpoint 1000 waits for its part from node 1")
    assert gang.is_told(0, "could not be uploaded and registered in time")


def test_a_node_killed_between_its_files_and_its_part_leaves_no_checkpoint(gang: Gang) -> None:
    # The part cannot be written, so that the kill falls after the files and before it.
    block(gang.checkpoint(10) / "parts/1.json")
    agents = gang.start(0, sharded(), terms={"drain": 2}), gang.start(1, sharded())
    wait_until(lambda: (gang.checkpoint(10) / "node-1/shards/weights.bin").exists(), "node 1's files")
    agents[1].kill()
    wait_until(lambda: gang.is_told(0, "checkpoint 10 waits for its part from node 1"), "node 0 waits")
    gang.drain(agents[0])
    assert gang.bench.committed() == []
    assert gang.bench.service.registrations == []


def test_node_0_killed_before_the_manifest_leaves_parts_that_no_later_attempt_takes(gang: Gang) -> None:
    block(gang.checkpoint(10) / "manifest.json")
    agents = gang.start(0, sharded()), gang.start(1, sharded())
    wait_until(lambda: (gang.checkpoint(10) / "parts/1.json").is_file(), "node 1's part")
    for agent in agents:
        agent.kill()
        agent.wait()
    assert gang.bench.service.registrations == []
    later = gang.start(0, sharded(), fence=2, terms={"drain": 2})
    wait_until(lambda: gang.is_told(0, "checkpoint 10 waits for its part from node 1"), "the later attempt waits")
    gang.drain(later)
    assert gang.bench.service.registrations == []
    assert not (gang.checkpoint(10, 2) / "manifest.json").exists()


def block(path: Path) -> None:
    """A folder with something in it, where a file is to be put."""
    path.mkdir(parents=True)
    (path / "x").write_text("in the way")


def test_a_node_delivers_the_step_that_node_0_calls_though_it_has_a_newer_one(gang: Gang) -> None:
    gang.start(1, sharded(20))
    wait_until(lambda: (gang.nodes[1].node / "ckpt/20").is_dir(), "both saves")
    gang.checkpoint(10).mkdir(parents=True)
    (gang.checkpoint(10) / "all-nodes").touch()
    wait_until(lambda: (gang.checkpoint(10) / "parts/1.json").is_file(), "the part of the older step")
    assert not gang.checkpoint(20).exists()


def test_a_shard_damaged_after_its_part_is_never_advertised(gang: Gang) -> None:
    agent = gang.start(1, sharded())
    wait_until(lambda: (gang.nodes[1].node / "ckpt/10").is_dir(), "node 1's save")
    gang.drain(agent)
    assert (gang.checkpoint(1000) / "parts/1.json").is_file(), "delivered at its end, without a call"
    shard = gang.checkpoint(1000) / "node-1/shards/weights.bin"
    shard.write_bytes(b"?" * shard.stat().st_size)
    agent = gang.start(0, sharded())
    wait_until(lambda: (gang.nodes[0].node / "ckpt/10").is_dir(), "node 0's save")
    gang.drain(agent)
    assert gang.bench.service.registrations == []
    assert gang.is_told(0, "checkpoint 1000 cannot be kept: node-1/shards/weights.bin: sha256 differs")


def test_node_0_keeps_to_a_called_step_until_too_many_wait_behind_it() -> None:
    nothing: frozenset[int] = frozenset()
    assert choose_for_gang(nothing, None, is_draining=False) == (None, nothing)
    assert choose_for_gang({10, 20}, None, is_draining=False) == (20, {10})
    assert choose_for_gang({10, 20, 30}, 20, is_draining=False) == (20, {10})
    assert choose_for_gang({10, 20, 30}, 20, is_draining=True) == (30, {10, 20})
    waiting = set(range(20, 20 + MAX_WAITING_SAVES + 1))
    assert choose_for_gang(waiting, 20, is_draining=False) == (max(waiting), waiting - {max(waiting)})


def manifest_of(*paths: str) -> Manifest:
    files = tuple(ManifestFile(path=path, size_bytes=1, sha256="0" * 64) for path in paths)
    return Manifest(step=1, fence=1, world_size=2, files=files)


@pytest.mark.parametrize("name", ["node-1/x", "node-7", "parts/1.json", "restores/2/0"])
def test_names_that_other_nodes_need_are_refused(name: str) -> None:
    check_share(manifest_of("all-nodes", "nodes/x", "partsy", "a/parts/x"))
    with pytest.raises(SavedInvalid, match="reserved"):
        check_share(manifest_of("all-nodes", name))


def test_a_path_too_long_for_its_nodes_folder_is_refused() -> None:
    with pytest.raises(SavedInvalid, match="too long"):
        build_part(manifest_of("x" * 510), 1)


def test_a_nodes_own_file_wins_over_a_folder_of_the_same_name() -> None:
    manifest = manifest_of("all-nodes", "a", "b/c", "d", "node-1/a/x", "node-1/b", "node-2/d")
    placed = place_files(manifest, 1, 3)
    assert {place: file.path for place, file in placed.items()} == {
        "all-nodes": "all-nodes",
        "d": "d",
        "a/x": "node-1/a/x",
        "b": "node-1/b",
    }
    assert {file.path for file in describe_placed(manifest, placed).files} == set(placed)
    plain = manifest_of("a", "node-1/a")
    assert set(place_files(plain, 1, 2)) == {"a", "node-1/a"}, "without the marker no name means anything"
