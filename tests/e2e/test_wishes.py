"""Pause, resume, cancel and retry, in the middle of real runs."""

from __future__ import annotations

import time

import pytest

from service.client.errors import ApiError
from tests.e2e.processes import wait_until
from tests.e2e.runs import check_promises, list_node_processes, submit
from tests.e2e.stack import Stack


def test_pause_drains_and_resume_repeats_no_step(stack: Stack) -> None:
    run = submit(stack, steps=50)
    reached = run.step_past(13)
    stack.api.pause(run.id)
    paused = run.reach("paused")
    assert paused.status_reason == "user_paused"
    assert paused.checkpoint_step is not None
    assert paused.checkpoint_step >= reached
    assert list_node_processes(run) == []
    check_promises(stack)
    stack.api.resume(run.id)
    job = run.succeed(50)
    assert run.steps() == list(range(1, 51))
    assert (job.preemption_count, job.fault_count) == (0, 0)


def test_cancel_in_the_middle_keeps_a_last_checkpoint(stack: Stack) -> None:
    run = submit(stack, steps=2000)
    reached = run.step_past(13)
    stack.api.cancel(run.id, now=False)
    job = run.reach("cancelled")
    assert job.end_reason == "cancelled"
    assert job.checkpoint_step is not None
    assert job.checkpoint_step >= reached
    assert list_node_processes(run) == []
    check_promises(stack)


def test_cancel_now_skips_the_drain(stack: Stack) -> None:
    run = submit(stack, steps=2000, checkpoint={"every_steps": 1_000_000})
    run.step_past(5)
    stack.api.cancel(run.id, now=True)
    job = run.reach("cancelled")
    assert job.checkpoint_step is None
    assert list_node_processes(run) == []
    check_promises(stack)


@pytest.mark.parametrize("delay_seconds", [0.0, 0.2, 0.7])
def test_a_cancel_that_races_with_the_launch_leaves_no_node(stack: Stack, delay_seconds: float) -> None:
    """Whatever the cancel meets (a queued job, an intent, a cluster that boots), it ends with nothing up."""
    run = submit(stack, steps=2000)
    time.sleep(delay_seconds)  # not a wait: which moment it hits is the case
    stack.api.cancel(run.id, now=True)
    assert run.reach("cancelled").end_reason == "cancelled"
    assert list_node_processes(run) == []
    assert all(cluster.job_id != run.id for cluster in stack.cloud.list_clusters())
    check_promises(stack)
    with pytest.raises(ApiError, match="cancelled"):
        stack.api.resume(run.id)


def test_a_retry_with_changed_settings_goes_on_from_the_verified_checkpoint(stack: Stack) -> None:
    """After an error of the user's code nothing is relaunched until it is asked for, with the error mended."""
    run = submit(stack, steps=40, env={"FAIL_AT": "25"})
    failed = run.reach("failed")
    assert failed.checkpoint_step == 20
    assert run.fences() == [1]
    stack.api.retry(run.id, {"env": {"FAIL_AT": "0"}})
    wait_until(lambda: run.fences() == [1, 2], "the relaunch")
    run.succeed(40)
    assert stack.api.attempts(run.id)[1].resumed_from_step == 20
    assert [line.step for line in run.journal() if line.fence == 2] == list(range(21, 41))
