"""What a run refuses, with which exit code, and that it says why in one line."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.training.ranks import Job, tiny_spec

USER_ERROR, NO_USABLE_CHECKPOINT = 2, 80


def assert_refused(job: Job, code: int, *words: str, resume_dir: Path | None = None) -> None:
    """Refused by every rank before any step."""
    before = len(job.losses())
    assert set(job.run(resume_dir)) == {code}, job.log
    errors = [line for line in job.log.splitlines() if line.startswith("error: ")]
    assert len(errors) == job.world_size
    assert "Traceback" not in job.log
    for word in words:
        assert word in errors[0]
    assert len(job.losses()) == before


@pytest.fixture
def started(root: Path, corpus: Path) -> Job:
    """A job with checkpoints at steps 2 and 4."""
    job = Job(root, tiny_spec(corpus, steps=4), every_steps=2)
    assert job.run() == [0], job.log
    return job


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"recipe": "no_such"}, ["recipe", "nano_gpt"]),
        ({"model": {"d_model": 63, "num_heads": 2}}, ["model", "num_heads=2"]),
        ({"model": {"d_modle": 64}}, ["model.d_modle"]),
        ({"model": {"vocab_size": 256}}, ["model.vocab_size"]),
        ({"steps": -1}, ["steps"]),
        ({"optimizer": {"learning_rate": float("nan")}}, ["learning_rate"]),
        ({"data": {"source": "/no/such/place"}}, ["data.source", "/no/such/place"]),
        ({"unknown": 1}, ["unknown"]),
        ({"model": {"context_length": 100_000, "d_model": 8, "num_heads": 1}}, ["tokens", "more text"]),
    ],
)
def test_a_faulty_spec_is_a_user_error(root: Path, corpus: Path, changes: dict[str, Any], words: list[str]) -> None:
    assert_refused(Job(root, tiny_spec(corpus, **changes)), USER_ERROR, *words)


def test_an_empty_or_unmatched_source_is_a_user_error(root: Path) -> None:
    (root / "text").mkdir()
    (root / "text" / "readme.md").write_text("nothing that matches *.py")
    assert_refused(Job(root / "job", tiny_spec(root / "text")), USER_ERROR, "data.include")


def test_a_plan_of_one_rank_refuses_two(root: Path, corpus: Path) -> None:
    assert_refused(Job(root, tiny_spec(corpus, plan="single"), world_size=2), USER_ERROR, "plan")


def test_another_architecture_is_refused_by_name(started: Job) -> None:
    started.spec["model"] |= {"num_layers": 3, "positions": "learned"}
    assert_refused(started, USER_ERROR, "num_layers 2 → 3", "positions rotary → learned")


def test_changed_data_is_refused(started: Job, root: Path, corpus: Path) -> None:
    other = root / "other"
    shutil.copytree(corpus, other)
    first = min(other.iterdir())
    first.write_text(first.read_text().replace("a", "b"))
    started.spec["data"] = {"source": str(other)}
    assert_refused(started, USER_ERROR, "data", "not what the checkpoint was trained on")


def test_the_same_data_elsewhere_is_accepted_with_the_checkpoints_tokeniser(
    started: Job, root: Path, corpus: Path
) -> None:
    """As on a fresh node: another place, an empty cache."""
    other = root / "other"
    shutil.copytree(corpus, other)
    started.spec |= {"data": {"source": str(other)}, "steps": 5}
    started.environ = {"GODWIT_CACHE_DIR": str(root / "fresh")}
    assert started.run() == [0], started.log
    assert not (root / "fresh" / "tokenizers").exists()
    assert started.losses()[-1][0] == 5


def test_a_global_batch_that_the_ranks_cannot_share_is_refused(started: Job) -> None:
    started.world_size = 3
    assert_refused(started, USER_ERROR, "global batch of 4", "3 ranks")


@pytest.mark.parametrize("damage", ["missing", "no manifest", "flipped bit", "truncated", "not ours"])
def test_a_promised_checkpoint_that_cannot_be_used_never_means_step_0(started: Job, damage: str) -> None:
    folder = started.checkpoints / "4"
    weights = folder / "model.pt"
    if damage == "missing":
        shutil.rmtree(folder)
    elif damage == "no manifest":
        (folder / "manifest.json").unlink()
    elif damage == "flipped bit":
        content = bytearray(weights.read_bytes())
        content[len(content) // 2] ^= 1
        weights.write_bytes(content)
    elif damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:-1])
    else:
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / "manifest.json").write_text('{"step": 4, "fence": 1, "world_size": 1, "files": []}')
    assert_refused(started, NO_USABLE_CHECKPOINT, "cannot resume", resume_dir=folder)


def test_by_hand_the_newest_intact_checkpoint_is_taken(started: Job) -> None:
    """The job's `start` chooses as a run by hand does."""
    (started.checkpoints / "4" / "model.pt").write_bytes(b"torn")
    assert started.run() == [0], started.log
    assert [step for step, _ in started.losses()] == [1, 2, 3, 4, 3, 4]
    assert started.losses()[2:4] == started.losses()[4:6]
