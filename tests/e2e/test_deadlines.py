"""A deadline that passes in the middle of a run."""

from __future__ import annotations

from datetime import timedelta

import pytest

from service.clock import system_clock
from tests.e2e.runs import check_promises, list_node_processes, submit
from tests.e2e.stack import Stack


@pytest.mark.parametrize("on_deadline", ["continue", "stop"])
def test_a_missed_deadline_is_told_once_and_ends_only_whom_it_is_to_end(stack: Stack, on_deadline: str) -> None:
    steps = 80 if on_deadline == "continue" else 2000
    deadline = system_clock() + timedelta(seconds=6)
    run = submit(stack, steps=steps, step_seconds=0.1, deadline=deadline.isoformat(), on_deadline=on_deadline)
    if on_deadline == "continue":
        run.succeed(steps)
        assert run.fences() == [1]
    else:
        job = run.reach("failed")
        assert job.end_reason == "deadline"
        assert job.checkpoint_step == run.steps()[-1]
        assert list_node_processes(run) == []
        check_promises(stack)
    missed = run.events("job.deadline_missed")
    assert len(missed) == 1
    assert missed[0].at >= deadline
