"""Drills: a loss on purpose, and the report of what it took."""

from __future__ import annotations

import pytest

from tests.e2e.runs import submit
from tests.e2e.stack import Stack


@pytest.mark.parametrize("has_notice", [True, False])
def test_a_drill_reports_detection_relaunch_first_step_and_steps_lost(stack: Stack, has_notice: bool) -> None:
    run = submit(stack, steps=80)
    run.reach("running")
    run.step_past(15)
    asked = stack.api.start_drill(run.id, notice=has_notice)
    run.succeed(80)
    drill = stack.api.drill(run.id, asked.id)

    assert (drill.state, drill.failure) == ("recovered", None)
    assert drill.detection_seconds is not None
    assert drill.relaunch_seconds is not None
    assert drill.first_step_seconds is not None
    assert drill.first_step_seconds >= drill.detection_seconds
    assert drill.steps_lost is not None
    assert drill.at_step is not None
    assert drill.resumed_from_step == drill.at_step - drill.steps_lost
    if has_notice:
        assert drill.steps_lost == 0
        assert run.repeated_steps() == 0
    assert [attempt.cause for attempt in stack.api.attempts(run.id)] == ["preempted", "completed"]
