# ruff: noqa: S311  (no secrets here)
"""A run killed and resumed repeats the uninterrupted one bit by bit."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.training.ranks import Job, kill, tiny_spec, wait_until
from training.checkpoint.store import verify

STEPS = 60


@pytest.mark.parametrize("world_size", [1, 2])
def test_losses_equal_those_of_an_uninterrupted_run_after_kills_at_random_instants(
    root: Path, corpus: Path, world_size: int
) -> None:
    spec = tiny_spec(corpus, steps=STEPS, accumulation=2 if world_size == 1 else 1)
    whole, broken = (Job(root / name, spec, world_size, every_steps=5) for name in ("whole", "broken"))
    assert whole.run() == [0] * world_size, whole.log
    kills = kill_at_random_instants(broken, num_kills=6, seed=world_size)
    assert broken.run() == [0] * world_size, broken.log

    assert len(kills) >= 4
    assert "in a save" in kills
    expected = dict(whole.losses())
    assert sorted(expected) == list(range(1, STEPS + 1))
    assert {step for step, _ in broken.losses()} == set(expected)
    assert len(broken.losses()) > STEPS, "no step was lost and repeated"
    assert [pair for pair in broken.losses() if expected[pair[0]] != pair[1]] == []
    assert dict(broken.validations()) == dict(whole.validations())
    assert broken.weights(STEPS) == whole.weights(STEPS)


def kill_at_random_instants(job: Job, *, num_kills: int, seed: int) -> list[str]:
    """Kill attempts at a random step, or while a checkpoint is being written. No torn checkpoint is ever visible.

    Where each attempt that was really killed stood.
    """
    instants = random.Random(seed)
    kills: list[str] = []
    for number in range(num_kills):
        goal = len(job.losses()) + instants.randint(2, 8)
        ranks = job.start()
        wait_until(lambda goal=goal: len(job.losses()) >= goal, ranks, pause_seconds=instants.random() / 500)
        if number % 2:
            wait_until(lambda: any(job.checkpoints.glob(".saving-*")), ranks, pause_seconds=0.0005)
        if kill(ranks):
            kills.append("in a save" if any(job.checkpoints.glob(".saving-*")) else "in a step")
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
