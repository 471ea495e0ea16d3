"""The state machine on real SQLite: thousands of steps, a crash possible at every boundary, G1-G5 throughout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.model import machine

STEPS_AN_EXAMPLE = 100
EXAMPLES = 80


@pytest.mark.timeout(600)
@pytest.mark.parametrize("half", [1, 2])
def test_no_order_of_events_crashes_and_lies_breaks_a_promise(half: int, sqlite_template: Path) -> None:
    """10,000 steps and more, in two halves that can run beside each other."""
    machine.steps_done = 0
    chosen = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS_AN_EXAMPLE,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],  # shrinking takes minutes: ask for it by hand when a promise breaks
        report_multiple_bugs=False,
    )

    class Half(machine.GodwitMachine):
        template = sqlite_template

    if os.environ.get("CI"):
        seed(half)(Half)  # there the same steps each time, and others in each half; elsewhere new ones with every run

    run_state_machine_as_test(Half, settings=chosen)
    print(f"half {half}: {machine.steps_done} steps")  # noqa: T201 - the figure is shown with -s
    assert machine.steps_done >= 5_000
