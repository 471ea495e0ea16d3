"""A budget too small, on a service whose grants and tails are short: it stops in time and goes on after a top-up."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest

from service.client.models import Budget
from tests.e2e.receiver import listen_to
from tests.e2e.runs import check_promises, list_node_processes, submit
from tests.e2e.stack import ON_DEMAND_HOURLY_USD, SPOT_SHARE, Stack, run_stack

TERMS = {"GRANT": "8", "DRAIN": "4", "TEARDOWN": "1", "STARTUP": "15", "SILENCE": "12", "MARGIN": "1"}
CEILING_USD = ON_DEMAND_HOURLY_USD * SPOT_SHARE * 1.02
"""Just above what spot costs, so that what is held is soon spent."""
CAP_USD = Decimal("0.0225")
"""About 55 seconds of one node. Eight of them are held to the last, so that 80 % are spent before the stop."""


@pytest.fixture(scope="module")
def tight_stack() -> Iterator[Stack]:
    with run_stack(terms=TERMS) as stack:
        yield stack


def test_a_budget_too_small_stops_the_job_in_time_and_a_top_up_ends_it(tight_stack: Stack) -> None:
    stack = tight_stack
    with listen_to(stack, ["budget.threshold_reached"]) as receiver:
        run = submit(
            stack,
            steps=280,
            step_seconds=0.2,
            budget={"cap_usd": str(CAP_USD)},
            checkpoint={"every": 5},
            resources={"max_price": f"{CEILING_USD:.4f}"},
        )
        paused = run.reach("paused", timeout_seconds=120)
        told = receiver.wait_for(3)

        assert (paused.status_reason, paused.holds) == ("budget_exhausted", ("budget",))
        assert list_node_processes(run) == []
        assert all(cluster.job_id != run.id for cluster in stack.cloud.list_clusters())
        assert paused.checkpoint_step == run.steps()[-1]
        stopped = stack.api.job_budget(run.id)
        assert_within_cap(stopped)
        assert stopped.reserved_usd == 0
        assert [one["data"]["threshold_percent"] for one in told] == [50, 80, 100]
        check_promises(stack)

        stack.api.top_up(stopped.id, "2.00")
        run.succeed(280)
        assert run.steps() == list(range(1, 281))
        assert run.fences() == [1, 2]
        assert_within_cap(stack.api.job_budget(run.id))
        assert len(receiver.verified()) == 3


def assert_within_cap(budget: Budget) -> None:
    assert 0 < budget.spent_usd <= budget.spent_usd + budget.reserved_usd <= budget.cap_usd


def test_a_budget_without_room_for_a_start_never_launches(tight_stack: Stack) -> None:
    run = submit(tight_stack, budget={"cap_usd": "0.001"})
    paused = run.reach("paused")
    assert paused.status_reason == "budget_exhausted"
    assert run.fences() == []
    tight_stack.api.cancel(run.id, now=False)
    run.reach("cancelled")
    check_promises(tight_stack)
