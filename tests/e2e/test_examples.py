"""The examples are jobs that the service takes, and those that need no accelerator and no minutes run to their end."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.cli.spec.build import SpecOptions, draft_spec, to_body, with_bundle
from tests.e2e.runs import Run, check_promises, upload_folder
from tests.e2e.stack import ROOT, Stack

EXAMPLES = sorted(path.relative_to(ROOT / "examples").as_posix() for path in (ROOT / "examples").rglob("*.yaml"))


def read_example(stack: Stack, name: str, *overrides: str) -> dict[str, object]:
    """As `godwit submit` reads it, its folder uploaded."""
    path = ROOT / "examples" / name
    draft = draft_spec(str(path), SpecOptions(overrides=overrides), lambda _name: "from the environment")
    spec = draft.spec if draft.folder is None else with_bundle(draft.spec, upload_folder(stack, draft.folder))
    return to_body(spec)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_admissible(stack: Stack, name: str) -> None:
    answer = stack.api.dry_run(read_example(stack, name))
    assert answer.is_admissible, answer.reasons


def test_the_example_of_any_command_leaves_its_outputs(stack: Stack, tmp_path: Path) -> None:
    run = Run(stack, stack.api.submit(read_example(stack, "any_command/job.yaml")).id)
    run.reach("succeeded")
    outputs = {output.path for output in stack.api.outputs(run.id)}
    assert outputs == {"node.txt", "figures/greeting.txt", "done.txt"}
    stack.api.download_output(run.id, "figures/greeting.txt", tmp_path / "greeting.txt")
    assert (tmp_path / "greeting.txt").read_text() == "a greeting in teal\n"
    check_promises(stack)


def test_the_plain_pytorch_loop_is_paused_resumed_and_ends(stack: Stack) -> None:
    """PyTorch alone, nothing of ours imported: it keeps the contract by environment and signals."""
    body = read_example(stack, "plain_loop/job.yaml", 'env.STEPS="8000"', "checkpoint.every_steps=200")
    run = Run(stack, stack.api.submit(body).id)
    run.follow(lambda job: job.checkpoint_step is not None, "a checkpoint")
    stack.api.pause(run.id)
    paused = run.reach("paused")
    assert paused.checkpoint_step is not None
    assert paused.checkpoint_step < 8000, "the loop was over before it was paused"
    stack.api.resume(run.id)
    job = run.reach("succeeded")
    assert job.checkpoint_step == 8000
    assert stack.api.attempts(run.id)[1].resumed_from_step == paused.checkpoint_step
    check_promises(stack)
