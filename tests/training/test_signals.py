"""SIGUSR1 saves and goes on; SIGTERM saves and ends; the ranks act at the same step."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.training.ranks import Job, join, tiny_spec, wait_until
from training.checkpoint.store import find_newest_verified, verify

LONG = 100_000


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_signal_to_one_rank_saves_on_request_and_drains_all_at_the_same_step(
    root: Path, corpus: Path, world_size: int
) -> None:
    job = Job(root, tiny_spec(corpus, steps=LONG), world_size, every_steps=LONG)
    ranks = job.start()
    wait_until(lambda: len(job.losses()) >= 2, ranks)
    target = ranks[-1].pid
    assert target is not None
    os.kill(target, signal.SIGUSR1)
    wait_until(lambda: any(job.checkpoints.glob("[0-9]*")), ranks)
    saved = job.losses()[-1][0]
    wait_until(lambda: job.losses()[-1][0] > saved + 2, ranks)

    os.kill(target, signal.SIGTERM)
    assert join(ranks) == [75] * world_size, job.log
    newest, faults = find_newest_verified(job.checkpoints)
    assert newest is not None
    assert not faults
    assert verify(newest).step == job.losses()[-1][0]
    assert len(list(job.checkpoints.iterdir())) == 2


def test_a_drained_run_goes_on_at_the_next_step_with_the_same_losses(root: Path, corpus: Path) -> None:
    whole = Job(root / "whole", tiny_spec(corpus))
    assert whole.run() == [0], whole.log
    drained = Job(root / "drained", tiny_spec(corpus), every_steps=LONG)
    ranks = drained.start()
    wait_until(lambda: len(drained.losses()) >= 3, ranks)
    os.kill(ranks[0].pid or 0, signal.SIGTERM)
    assert join(ranks) == [75], drained.log
    assert drained.run() == [0], drained.log
    assert drained.losses() == whole.losses()


def test_a_lost_peer_is_told_as_an_infrastructure_fault(root: Path, corpus: Path) -> None:
    job = Job(root, tiny_spec(corpus, steps=LONG), world_size=2, every_steps=LONG)
    ranks = job.start()
    wait_until(lambda: len(job.losses()) >= 1, ranks)
    ranks[1].kill()
    assert join(ranks) == [79, -signal.SIGKILL], job.log
    assert "lost a peer" in job.log
