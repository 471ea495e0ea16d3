"""The retry schedule of webhooks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.webhook_schedule import DELAYS, JITTER, DeliveryState, is_subscribed, judge_try, retry_at

T0 = datetime(2026, 3, 1, tzinfo=UTC)
jitters = st.floats(0, 1, exclude_max=True)


@given(st.integers(1, len(DELAYS) - 1), jitters)
def test_a_retry_comes_within_its_delay_and_jitter(tries: int, jitter: float) -> None:
    due_at = retry_at(tries=tries, failed_at=T0, jitter=jitter)
    assert due_at is not None
    assert DELAYS[tries] <= due_at - T0 <= DELAYS[tries] * (1 + JITTER)


@given(st.lists(jitters, min_size=len(DELAYS), max_size=len(DELAYS)))
def test_a_receiver_that_is_down_three_days_is_still_reached(draws: list[float]) -> None:
    at, tries = T0, 0
    while at - T0 < timedelta(days=3):
        tries += 1
        verdict = judge_try(tries=tries, status=500, at=at, jitter=draws[tries - 1])
        assert verdict.state == DeliveryState.PENDING
        assert verdict.due_at is not None
        at = verdict.due_at
    assert judge_try(tries=tries + 1, status=200, at=at, jitter=0).state == DeliveryState.DELIVERED


def test_the_last_failure_is_a_dead_letter() -> None:
    verdict = judge_try(tries=len(DELAYS), status=None, at=T0, jitter=0)
    assert (verdict.state, verdict.due_at, verdict.is_gone) == (DeliveryState.DEAD, None, False)


@pytest.mark.parametrize("status", [None, 100, 199, 301, 302, 307, 400, 404, 429, 500, 503])
def test_anything_but_success_is_tried_again(status: int | None) -> None:
    assert judge_try(tries=1, status=status, at=T0, jitter=0).due_at == T0 + timedelta(seconds=5)


def test_gone_disables_the_endpoint() -> None:
    verdict = judge_try(tries=1, status=410, at=T0, jitter=0)
    assert (verdict.state, verdict.is_gone) == (DeliveryState.DEAD, True)


@pytest.mark.parametrize(
    ("wanted", "event_type", "is_wanted"),
    [
        ([], "job.running", True),
        (["job.running"], "job.running", True),
        (["job.running"], "job.running.twice", False),
        (["budget.*", "job.*"], "job.running", True),
        (["job.*"], "jobs.running", False),
        (["job.*"], "job", False),
    ],
)
def test_subscriptions(wanted: list[str], event_type: str, is_wanted: bool) -> None:
    assert is_subscribed(wanted, event_type) is is_wanted
