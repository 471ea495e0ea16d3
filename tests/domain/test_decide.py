"""The decision over every snapshot that Hypothesis can think of: laws that no evidence and no wish may break."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings

from service.domain.decide import decide
from service.domain.decision import IMMEDIATELY, Decision, Launch, Terminate
from service.domain.judge import is_fenced_off
from service.domain.observations import ClusterState
from service.domain.snapshot import Snapshot
from service.domain.states import (
    ATTEMPT_ORDER,
    JOB_TRANSITIONS,
    TERMINAL_STATUSES,
    AttemptState,
    EndReason,
    JobStatus,
)
from tests.domain.snapshots import NOW, apply, snapshots

LAUNCHED = (JobStatus.PROVISIONING, JobStatus.STARTING, JobStatus.RUNNING, JobStatus.RECOVERING)


def states_after(snapshot: Snapshot, decision: Decision) -> dict[int, AttemptState]:
    changed = {change.fence: change.state for change in decision.attempts}
    return {view.fence: changed.get(view.fence, view.state) for view in snapshot.attempts}


def law_every_decision_obeys_both_transition_tables(snapshot: Snapshot) -> None:
    decision = decide(snapshot)
    before = snapshot.job.status
    assert decision.status == before or decision.status in JOB_TRANSITIONS[before]
    views = {view.fence: view for view in snapshot.attempts}
    for change in decision.attempts:
        assert ATTEMPT_ORDER.index(change.state) >= ATTEMPT_ORDER.index(views[change.fence].state)
        assert not (change.is_loss and views[change.fence].cause), "a loss is counted once"


def law_the_same_evidence_settles_within_a_few_decisions_and_then_changes_nothing(snapshot: Snapshot) -> None:
    for _ in range(8):
        decision = decide(snapshot)
        snapshot = apply(snapshot, decision)
        if decision.requeue_after != IMMEDIATELY or decision.new_attempt is not None:
            break
    else:
        raise AssertionError("due again at once for ever")
    if decision.new_attempt is None:
        again = decide(snapshot)
        assert (again.status, again.reason, again.end_reason) == (decision.status, decision.reason, decision.end_reason)
        assert again.attempts == ()
        assert again.new_attempt is None
        assert again.add_hold is None
        assert not again.is_deadline_missed


def law_nothing_is_launched_beside_an_attempt_that_may_still_run(snapshot: Snapshot) -> None:
    decision = decide(snapshot)
    if decision.new_attempt is None:
        return
    assert decision.new_attempt.fence > max(snapshot.fence_floor, snapshot.job.fence)
    after = states_after(snapshot, decision)
    for view in snapshot.attempts:
        is_over = is_fenced_off(view, now=snapshot.now, terms=snapshot.terms)
        assert after[view.fence] is AttemptState.GONE or is_over


def law_a_job_at_rest_has_no_live_attempt(snapshot: Snapshot) -> None:
    decision = decide(snapshot)
    if decision.status is JobStatus.PAUSED or decision.status in TERMINAL_STATUSES:
        assert set(states_after(snapshot, decision).values()) <= {AttemptState.GONE}


def law_a_stop_beats_holds_and_is_irrevocable(snapshot: Snapshot) -> None:
    if snapshot.job.status in TERMINAL_STATUSES:
        return
    stopped = replace(snapshot, job=replace(snapshot.job, stop=EndReason.CANCELLED))
    decision = decide(stopped)
    assert decision.status is JobStatus.STOPPING or decision.status in TERMINAL_STATUSES
    assert decision.end_reason is not None
    assert decision.new_attempt is None


def law_the_first_end_reason_wins(snapshot: Snapshot) -> None:
    if snapshot.job.status is not JobStatus.STOPPING:
        return
    decision = decide(snapshot)
    assert decision.end_reason is snapshot.job.end_reason
    if decision.status is not JobStatus.STOPPING:
        assert snapshot.job.end_reason is not None
        assert decision.status is snapshot.job.end_reason.to_status()


def law_a_held_job_launches_nothing(snapshot: Snapshot) -> None:
    decision = decide(snapshot)
    if snapshot.job.holds or snapshot.job.stop:
        assert decision.new_attempt is None


def law_an_attempt_is_asked_for_only_when_the_provider_says_it_is_not_there(snapshot: Snapshot) -> None:
    decision = decide(snapshot)
    views = {view.fence: view for view in snapshot.attempts}
    for action in decision.actions:
        view = views.get(action.fence)
        if isinstance(action, Launch) and view is not None:
            assert view.observation is not None
            assert view.observation.state is ClusterState.ABSENT
            assert states_after(snapshot, decision)[action.fence] is AttemptState.INTENDED
        if isinstance(action, Terminate):
            assert states_after(snapshot, decision)[action.fence] is AttemptState.TERMINATING


def law_what_the_provider_does_not_answer_changes_nothing(snapshot: Snapshot) -> None:
    """A job whose nodes were all heard a moment ago, and of whose cluster nothing is known, is left alone."""
    if snapshot.job.status not in LAUNCHED:
        return
    calm = tuple(
        replace(
            view,
            observation=None,
            launch_failure=None,
            launched_at=view.launched_at and NOW,
            intended_at=NOW,
            nodes=tuple(replace(node, heard_at=NOW, has_notice=False, exit_kind=None) for node in view.nodes),
        )
        for view in snapshot.attempts
    )
    job = replace(snapshot.job, holds=frozenset(), stop=None, stops_on_deadline=False)
    decision = decide(replace(snapshot, attempts=calm, job=job))
    assert not any(change.is_loss for change in decision.attempts)


def law_money_that_does_not_reach_is_refused_with_its_reason(snapshot: Snapshot) -> None:
    decision = decide(snapshot)
    money = snapshot.money
    if decision.new_attempt is not None and money.available_nano is not None:
        span = snapshot.job.first_grant + snapshot.terms.tail
        least = (
            decision.new_attempt.candidate.ceiling_hourly_nano * snapshot.job.num_nodes * (span / timedelta(hours=1))
        )
        assert least <= money.available_nano + 1


def law_a_job_that_is_not_at_rest_is_always_looked_at_again(snapshot: Snapshot) -> None:
    decision = decide(snapshot)
    if decision.requeue_after is None:
        assert decision.status is JobStatus.PAUSED or decision.status in TERMINAL_STATUSES
        has_deadline_ahead = snapshot.job.deadline is not None and not snapshot.job.is_deadline_missed
        assert not (has_deadline_ahead and decision.status is JobStatus.PAUSED and not decision.is_deadline_missed)


LAWS: list[Callable[[Snapshot], None]] = [law for name, law in list(globals().items()) if name.startswith("law_")]


@pytest.mark.parametrize("statuses", [tuple(LAUNCHED), tuple(set(JobStatus) - set(LAUNCHED))], ids=["up", "not-up"])
def test_every_law_holds_for_every_snapshot(statuses: tuple[JobStatus, ...]) -> None:
    @settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
    @given(snapshots(tuple(sorted(statuses))))
    def check(snapshot: Snapshot) -> None:
        for law in LAWS:
            law(snapshot)

    assert len(LAWS) == 11
    check()
