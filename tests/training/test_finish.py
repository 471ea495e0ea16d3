"""What a finished run leaves, and what its metrics say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.training.ranks import Job, tiny_spec
from training.checkpoint.store import verify
from training.data.tokenizer import Tokenizer


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_learns_and_leaves_its_sample_figures_and_last_checkpoint(
    root: Path, corpus: Path, precision: str
) -> None:
    spec = tiny_spec(corpus, steps=60, precision=precision, log_interval=20, sample_prompt="def", sample_tokens=12)
    job = Job(root, spec, every_steps=1000)
    assert job.run() == [0], job.log
    final = json.loads((root / "outputs" / "final.json").read_text())
    assert final["steps"] == 60
    assert final["tokens"] == 60 * 4 * 32
    assert final["final_loss"] < 0.85 * final["first_loss"]
    assert final["val_loss"] == dict(job.validations())[60]
    assert (root / "outputs" / "sample.txt").read_text().startswith("def")
    manifest = verify(job.checkpoints / "60")
    assert (manifest.step, manifest.tokens, manifest.val_loss) == (60, final["tokens"], final["val_loss"])


def test_metrics_start_at_the_first_new_step_and_follow_the_interval(root: Path, corpus: Path) -> None:
    job = Job(root, tiny_spec(corpus, steps=10, log_interval=4, eval_interval=100), every_steps=1000)
    assert job.run() == [0], job.log
    assert [step for step, _ in job.losses()] == [1, 4, 8, 10]
    line = next(line for line in job.metrics() if line["step"] == 8)
    assert line["performance/tokens_per_second"] > 0
    assert line["data/tokens"] == 8 * 4 * 32
    assert any("checkpoint/seconds_blocked" in line for line in job.metrics())


def test_a_finished_run_started_again_changes_nothing_but_its_outputs(root: Path, corpus: Path) -> None:
    job = Job(root, tiny_spec(corpus, steps=3, sample_prompt="import", sample_tokens=8))
    assert job.run() == [0], job.log
    before, sample = job.losses(), (root / "outputs" / "sample.txt").read_text()
    (root / "outputs" / "sample.txt").unlink()
    assert job.run() == [0], job.log
    assert job.losses() == before
    assert (root / "outputs" / "sample.txt").read_text() == sample


def test_an_unwritable_checkpoint_folder_is_an_infrastructure_fault(root: Path, corpus: Path) -> None:
    """A file where the folder's temporary name would be: every write fails, as on a full disk."""
    job = Job(root, tiny_spec(corpus, steps=2), every_steps=1000)
    job.checkpoints.mkdir(parents=True)
    (job.checkpoints / ".saving-2").write_text("in the way")
    assert job.run() == [79], job.log
    assert "was not written" in job.log
    assert any(line.get("checkpoint/failed") for line in job.metrics())


def test_the_checkpoint_carries_the_tokeniser(root: Path, corpus: Path) -> None:
    job = Job(root, tiny_spec(corpus, steps=1))
    assert job.run() == [0], job.log
    tokenizer = Tokenizer((job.checkpoints / "1" / "tokenizer.json").read_bytes())
    assert tokenizer.decode(tokenizer.encode("for x in y:\n\treturn 'ü'")) == "for x in y:\n\treturn 'ü'"
