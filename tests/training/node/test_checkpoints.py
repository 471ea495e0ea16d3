"""Restore and upload against damage: real agents, a folder as the bucket, bytes changed on disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.training.node.conftest import WAIT_SECONDS, Bench, trainer, wait_until
from tests.training.node.service_double import ImdsDouble, ServiceDouble
from training.node.saved import Author, SavedInvalid, choose_newest, choose_prunable, read_saved
from training.protocol.launch_spec import Candidate
from training.protocol.manifest import Manifest, ManifestFile, digest
from training.protocol.messages import ExitKind, Phase


@pytest.fixture(scope="module")
def first_attempt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """An attempt that left two registered checkpoints in its bucket."""
    made = Bench(folder=tmp_path_factory.mktemp("first"), service=ServiceDouble(), imds=ImdsDouble())
    assert made.run_to_end(made.spec(run=trainer(last=40, every=20, pause=0.03))) == 0
    yield made
    made.close()


@pytest.fixture
def trained(bench: Bench, first_attempt: Bench) -> tuple[Candidate, ...]:
    """A copy of that bucket; its candidates, newest first."""
    shutil.copytree(first_attempt.bucket_folder, bench.bucket_folder)
    registered = sorted(first_attempt.service.registered.items(), reverse=True)
    assert [key for key, _ in registered] == [(40, 1), (20, 1)]
    return tuple(Candidate(step=step, fence=fence, manifest_sha256=sha256) for (step, fence), sha256 in registered)


def shard(bench: Bench, step: int) -> Path:
    return bench.bucket_folder / f"jobs/job-1/ckpt/{step}-1/shards/weights.bin"


def test_the_newest_checkpoint_that_verifies_is_resumed(bench: Bench, trained: tuple[Candidate, ...]) -> None:
    spec = bench.spec(fence=2, candidates=trained, run=trainer(last=45))
    assert bench.run_to_end(spec) == 0
    last = bench.service.last
    assert last is not None
    assert (last.resumed_from_step, last.step) == (40, 45)
    assert last.corrupt_checkpoints == ()
    assert any(heartbeat.phase is Phase.RESTORING for heartbeat in bench.service.heartbeats)
    steps = [point.step for heartbeat in bench.service.heartbeats for point in heartbeat.metrics]
    assert steps == [41, 42, 43, 44, 45]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.write_bytes(b"\xff" + path.read_bytes()[1:]), "sha256 differs"),
        (lambda path: path.write_bytes(path.read_bytes()[:100]), "100 bytes instead of 4096"),
        (lambda path: path.unlink(), "missing"),
        (lambda path: (path.parents[1] / "manifest.json").unlink(), "manifest.json: missing"),
        (lambda path: (path.parents[1] / "manifest.json").write_text("{"), "not a manifest"),
        (lambda path: _rewrite_manifest(path.parents[1] / "manifest.json"), "differs from the registered one"),
    ],
    ids=["flipped", "torn", "shard-missing", "manifest-missing", "manifest-torn", "manifest-other"],
)
def test_a_damaged_checkpoint_falls_back_and_is_reported(
    bench: Bench, trained: tuple[Candidate, ...], damage, reason: str
) -> None:
    damage(shard(bench, 40))
    assert bench.run_to_end(bench.spec(fence=2, candidates=trained, run=trainer(last=25))) == 0
    last = bench.service.last
    assert last is not None
    assert last.resumed_from_step == 20
    assert [(found.step, found.fence) for found in last.corrupt_checkpoints] == [(40, 1)]
    assert reason in last.corrupt_checkpoints[0].reason


def _rewrite_manifest(path: Path) -> None:
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"tokens": 5}))


def test_no_usable_checkpoint_is_never_step_zero(bench: Bench, trained: tuple[Candidate, ...]) -> None:
    for step in (20, 40):
        shard(bench, step).unlink()
    marker = bench.folder / "started"
    assert bench.run_to_end(bench.spec(fence=2, candidates=trained, run=f"touch {marker}")) == 80
    report = bench.exit_report()
    assert report.kind is ExitKind.NO_USABLE_CHECKPOINT
    assert not marker.exists()
    assert bench.service.last is not None
    assert len(bench.service.last.corrupt_checkpoints) == 2


def test_a_bucket_out_of_reach_at_restore_is_waited_for(bench: Bench, trained: tuple[Candidate, ...]) -> None:
    away = bench.bucket_folder.rename(bench.folder / "away")
    bench.bucket_folder.write_text("no folder")
    agent = bench.start(bench.spec(fence=2, candidates=trained, run=trainer(last=45)))
    wait_until(lambda: any("out of reach" in text for text in bench.service.texts), "the agent's word")
    bench.bucket_folder.unlink()
    away.rename(bench.bucket_folder)
    assert agent.wait(WAIT_SECONDS) == 0
    assert bench.service.last is not None
    assert bench.service.last.resumed_from_step == 40
    assert bench.service.last.corrupt_checkpoints == ()


def test_a_bucket_out_of_reach_at_save_does_not_stop_the_ranks(bench: Bench) -> None:
    bench.bucket_folder.write_text("no folder")
    agent = bench.start(bench.spec(run=trainer(every=10)))
    bench.wait_for_step(35)
    wait_until(lambda: any("skipped for a newer one" in text for text in bench.service.texts), "skipped ones told")
    assert bench.service.registrations == []
    bench.bucket_folder.unlink()
    wait_until(lambda: bench.service.registrations, "a registration after the bucket's return")
    bench.service.command("drain")
    assert agent.wait(WAIT_SECONDS) == 75


def test_registration_is_repeated_until_acknowledged(bench: Bench) -> None:
    bench.service.refuses_registrations = True
    agent = bench.start(bench.spec(run=trainer(every=10)))
    wait_until(bench.committed, "a manifest")
    bench.wait_for_step(30)
    bench.service.refuses_registrations = False
    wait_until(lambda: (10, 1) in bench.service.registered, "the first one's registration")
    agent.kill()


def test_an_upload_broken_off_by_sigkill_leaves_no_checkpoint_behind(bench: Bench) -> None:
    # The manifest cannot be written: what the first attempt leaves are shards alone, as after a kill in between.
    ckpt = bench.bucket_folder / "jobs/job-1/ckpt"
    blocked = ckpt / "10-1" / "manifest.json"
    blocked.mkdir(parents=True)
    (blocked / "x").write_text("in the way")
    agent = bench.start(bench.spec(run=trainer(every=10, last=12)))
    wait_until(lambda: (ckpt / "10-1/shards/weights.bin").exists(), "the shards")
    agent.kill()
    agent.wait()
    assert bench.service.registered == {}
    shutil.rmtree(blocked)
    assert bench.run_to_end(bench.spec(run=trainer(every=10, last=12))) == 0
    assert (10, 1) in bench.service.registered


@pytest.mark.parametrize(("sha256", "what"), [("0" * 64, "sha256"), (digest(b"other"), "size")])
def test_bytes_that_are_not_what_their_manifest_says_are_never_advertised(bench: Bench, sha256: str, what: str) -> None:
    size_bytes = 1 if what == "sha256" else 5
    manifest = Manifest(
        step=5,
        fence=1,
        world_size=1,
        files=(ManifestFile(path="x", size_bytes=size_bytes, sha256=sha256),),
    )
    source = bench.folder / "manifest.json"
    source.write_bytes(manifest.to_bytes())
    folder = "$GODWIT_CHECKPOINT_DIR"
    command = f"mkdir {folder}/.5; printf x > {folder}/.5/x; cp {source} {folder}/.5/; mv {folder}/.5 {folder}/5"
    assert bench.run_to_end(bench.spec(run=command)) == 0
    assert bench.committed() == []
    assert bench.service.registrations == []
    assert any("checkpoint 5 cannot be kept" in text for text in bench.service.texts)


def test_a_repeat_with_other_bytes_is_told_and_not_registered(bench: Bench) -> None:
    bench.service.registered[(10, 1)] = "0" * 64
    assert bench.run_to_end(bench.spec(run=trainer(every=10, last=12))) == 0
    assert bench.service.registered[(10, 1)] == "0" * 64
    assert any("checkpoint 10 was not registered" in text for text in bench.service.texts)


def test_the_service_says_what_may_be_deleted(bench: Bench, trained: tuple[Candidate, ...]) -> None:
    bench.service.delete = ("20-1", "../../../etc", "40")
    assert bench.run_to_end(bench.spec(fence=2, candidates=trained, run=trainer(last=45, every=45))) == 0
    assert bench.committed() == [(40, 1), (45, 2)]
    assert not list(bench.bucket_folder.glob("jobs/job-1/ckpt/20-1/**/*.bin"))


def test_the_node_keeps_its_newest_two_checkpoints(bench: Bench) -> None:
    assert bench.run_to_end(bench.spec(run=trainer(last=80, every=16, pause=0.05))) == 0
    assert sorted(int(path.name) for path in (bench.node / "ckpt").iterdir()) == [64, 80]


def test_only_the_first_node_commits(bench: Bench) -> None:
    spec = bench.spec(node_rank=1, num_nodes=2, run=trainer(last=6, every=3))
    assert bench.run_to_end(spec) == 0
    assert bench.committed() == []
    assert bench.service.registrations == []


def test_the_newest_pending_checkpoint_wins() -> None:
    assert choose_newest({10, 20, 30}, {10}) == (30, frozenset({20}))
    assert choose_newest({10}, {10}) == (None, frozenset())
    assert choose_prunable({10, 20, 30, 40}, {10, 30, 40}) == {10}
    assert choose_prunable({10, 20}, {10, 20}) == frozenset()


def test_folders_that_cannot_be_a_checkpoint_say_why(tmp_path: Path) -> None:
    author = Author(fence=1, world_size=1)
    with pytest.raises(SavedInvalid, match="empty"):
        read_saved(tmp_path, 1, author)
    (tmp_path / "secret").symlink_to("/etc/hostname")
    with pytest.raises(SavedInvalid, match="regular files"):
        read_saved(tmp_path, 1, author)
    (tmp_path / "secret").unlink()
    (tmp_path / "a b").write_text("x")
    with pytest.raises(SavedInvalid, match="file names"):
        read_saved(tmp_path, 1, author)
    (tmp_path / "a b").rename(tmp_path / "ab")
    assert [file.path for file in read_saved(tmp_path, 1, author).files] == ["ab"]
    with pytest.raises(SavedInvalid, match="of step 1, fence 1"):
        read_saved(tmp_path, 1, Author(fence=2, world_size=1))
