# ruff: noqa: S311  (no secrets here)
"""A run killed and resumed repeats the uninterrupted one bit by bit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.training.ranks import Job, kill, tiny_spec, wait_until
from training.checkpoint.store import verify

STEPS = 24


@pytest.mark.parametrize("world_size", [1, 2])
def test_losses_equal_those_of_an_uninterrupted_run_after_kills_at_random_instants(
    root: Path, corpus: Path, world_size: int
) -> None:
    spec = tiny_spec(corpus, accumulation=2 if world_size == 1 else 1)
    whole, broken = (Job(root / name, spec, world_size) for name in ("whole", "broken"))
    assert whole.run() == [0] * world_size, whole.log
    kills = kill_at_random_instants(broken, num_kills=5, seed=world_size)
    assert broken.run() == [0] * world_size, broken.log

    expected = dict(whole.losses())
    assert sorted(expected) == list(range(1, STEPS + 1))
    assert {step for step, _ in broken.losses()} == set(expected)
    assert [pair for pair in broken.losses() if expected[pair[0]] != pair[1]] == []
    assert dict(broken.validations()) == dict(whole.validations())
    assert broken.weights(STEPS) == whole.weights(STEPS)
    assert kills["in a step"] + kills["in a save"] >= 3


def kill_at_random_instants(job: Job, *, num_kills: int, seed: int) -> dict[str, int]:
    """Kill attempts, at a random step or while a checkpoint is being written; no torn checkpoint is ever visible."""
    instants = random.Random(seed)
    kills = {"in a step": 0, "in a save": 0}
    for number in range(num_kills):
        seen = len(job.losses())
        more = instants.randint(1, 5)
        ranks = job.start()
        is_in_save = number % 2 == 1
        if is_in_save:
            wait_until(lambda seen=seen: len(job.losses()) > seen, ranks)
            wait_until(lambda: any(job.checkpoints.glob(".saving-*")), ranks, pause_seconds=0.0)
        else:
            wait_until(lambda seen=seen, more=more: len(job.losses()) >= seen + more, ranks)
        kill(ranks)
        kills["in a save" if any(job.checkpoints.glob(".saving-*")) else "in a step"] += 1
        for folder in job.checkpoints.glob("[0-9]*"):
            verify(folder)
    return kills


def test_a_start_without_a_checkpoint_removes_what_a_killed_writer_left(root: Path, corpus: Path) -> None:
    job = Job(root, tiny_spec(corpus, steps=1))
    (job.checkpoints / ".saving-7").mkdir(parents=True)
    assert job.run() == [0], job.log
    assert sorted(path.name for path in job.checkpoints.iterdir()) == ["1"]


def test_another_number_of_ranks_sees_the_same_samples(root: Path, corpus: Path) -> None:
    spec = tiny_spec(corpus, steps=8)
    spec["model"]["dropout"] = 0.0
    two = Job(root / "two", spec, world_size=2, every_steps=4)
    assert two.run() == [0, 0], two.log
    one = Job(root / "one", spec, world_size=1)
    assert one.run(resume_dir=two.checkpoints / "4") == [0], one.log
    expected = [loss for step, loss in two.losses() if step > 4]
    assert [step for step, _ in one.losses()] == [5, 6, 7, 8]
    assert [loss for _, loss in one.losses()] == pytest.approx(expected, rel=1e-5)
