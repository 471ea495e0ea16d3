"""A run survives what the market does to it, whenever it does it."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.processes import wait_until
from tests.e2e.runs import Run, journal_path, submit
from tests.e2e.stack import Stack
from training.protocol.manifest import MANIFEST_NAME


def test_a_run_survives_a_noticed_and_an_unnoticed_loss(stack: Stack) -> None:
    """With notice no step is lost, without one at most one interval; each time it moves to another offer."""
    run = submit(stack, steps=80, step_seconds=0.1)
    run.step_past(15)
    run.take_node(has_notice=True)
    run.follow(lambda job: (job.checkpoint_step or 0) >= 50, "a checkpoint of the second attempt")
    run.take_node(has_notice=False)
    job = run.succeed(80)

    noticed, killed = run.preemptions()
    assert (noticed.notice, killed.notice) == (True, False)
    assert noticed.steps_lost == 0
    assert noticed.resumed_from_step == noticed.at_step
    assert killed.steps_lost is not None
    assert killed.steps_lost <= run.repeated_steps() <= 10
    attempts = stack.api.attempts(run.id)
    assert [attempt.cause for attempt in attempts] == ["preempted", "preempted", "completed"]
    assert len({attempt.offer_id for attempt in attempts}) == 3
    assert job.preemption_count == 2
    assert all(checkpoint.verified for checkpoint in stack.api.checkpoints(run.id))


def test_a_run_is_preempted_in_set_up_in_a_step_and_in_a_restart(stack: Stack) -> None:
    """Each time it goes on from its last commit: from nothing, then from the checkpoint, then from the same one again."""
    run = submit(stack, steps=50, setup="touch ${JOURNAL}-$GODWIT_FENCE; sleep 1")
    for fence in (1, 3):
        wait_for_setup(run, fence)
        run.take_node(has_notice=False)
        if fence == 1:
            run.step_past(25)
            run.take_node(has_notice=False)
    run.succeed(50)
    assert [attempt.resumed_from_step for attempt in stack.api.attempts(run.id)][:3] == [None, 0, None]
    last = stack.api.attempts(run.id)[-1]
    assert last.fence == 4
    assert last.resumed_from_step is not None
    assert last.resumed_from_step >= 10
    assert {line.fence for line in run.journal()} == {2, 4}


def test_a_loss_during_an_upload_leaves_the_older_checkpoint_the_latest(stack: Stack) -> None:
    """A folder in the bucket without its manifest is no checkpoint."""
    run = submit(stack, steps=60, env={"PAYLOAD_FILES": "200"}, checkpoint={"every_steps": 20})
    folder = stack.bucket / "jobs" / run.id / "ckpt"
    run.follow(lambda job: job.checkpoint_step == 20, "the first checkpoint")
    wait_until(lambda: (folder / "40-1").exists(), "the second upload", pause_seconds=0.005)
    run.take_node(has_notice=False)
    assert not (folder / "40-1" / MANIFEST_NAME).exists(), "the upload was over before the node was"
    run.follow(lambda job: job.model_extra is not None and job.model_extra["fence"] == 2, "the relaunch")
    assert [one.step for one in stack.api.checkpoints(run.id)] == [20]
    run.succeed(60)
    assert stack.api.attempts(run.id)[1].resumed_from_step == 20


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(stack: Stack) -> None:
    """One flipped bit in the newest: the node tells, the register marks it, the run goes on from the older one."""
    run = submit(stack, steps=60)
    run.step_past(22)
    stack.api.pause(run.id)
    newest = run.reach("paused").checkpoint_step
    assert newest is not None
    older = max(one.step for one in stack.api.checkpoints(run.id) if one.step < newest)
    shard = stack.bucket / "jobs" / run.id / "ckpt" / f"{newest}-1" / "state.json"
    content = bytearray(shard.read_bytes())
    content[3] ^= 1
    shard.write_bytes(content)
    stack.api.resume(run.id)
    run.succeed(60)
    assert [event.data["step"] for event in run.events("checkpoint.corrupt")] == [newest]
    assert stack.api.attempts(run.id)[1].resumed_from_step == older


def test_a_manifest_without_its_shard_is_never_advertised(stack: Stack) -> None:
    """The survey before a relaunch finds it, reads it, and leaves it alone."""
    run = submit(stack, steps=60)
    run.follow(lambda job: job.checkpoint_step is not None, "a checkpoint")
    folder = stack.bucket / "jobs" / run.id / "ckpt"
    whole = min(path for path in folder.iterdir() if (path / MANIFEST_NAME).exists())
    torn = folder / "55-1"
    torn.mkdir()
    manifest = (whole / MANIFEST_NAME).read_text().replace(f'"step": {whole.name.split("-")[0]}', '"step": 55', 1)
    (torn / MANIFEST_NAME).write_text(manifest)
    run.take_node(has_notice=False)
    run.succeed(60)
    assert 55 not in [one.step for one in stack.api.checkpoints(run.id, with_deleted=True)]
    assert stack.api.attempts(run.id)[1].resumed_from_step != 55


def wait_for_setup(run: Run, fence: int) -> None:
    """Until that attempt's set-up has begun."""
    mark = Path(f"{journal_path(run.stack, run.id)}-{fence}")
    wait_until(mark.exists, f"the set-up of attempt {fence}", 60, 0.02)
