"""The transition tables, spelled out once more as users read them, and an example that reaches each row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from service.domain.decide import decide
from service.domain.observations import ClusterState
from service.domain.snapshot import ExitKind, LaunchFailure, Snapshot
from service.domain.states import (
    JOB_TRANSITIONS,
    AttemptCause,
    AttemptState,
    EndReason,
    Hold,
    IllegalTransition,
    JobStatus,
    check_attempt_transition,
    check_job_transition,
)
from tests.domain.snapshots import make_attempt, make_job, make_node, make_snapshot, see

S = JobStatus
USER_HOLD = frozenset({Hold.USER})
STOP = {"stop": EndReason.CANCELLED}


def with_job(status: JobStatus, *attempts: object, **job: object) -> Callable[[], Snapshot]:
    return lambda: make_snapshot(make_job(status, **job), *attempts)  # type: ignore[arg-type]


def launching(**more: object) -> object:
    return make_attempt(AttemptState.LAUNCHING, **more)


PREEMPTED = make_attempt(observation=see(ClusterState.ENDED, is_preempted=True))
GONE = make_attempt(AttemptState.TERMINATING, cause=AttemptCause.PREEMPTED, observation=see(ClusterState.ENDED))
NO_CAPACITY = make_attempt(
    AttemptState.TERMINATING,
    cause=AttemptCause.NO_CAPACITY,
    launched_at=None,
    nodes=(),
    launch_failure=LaunchFailure.NO_CAPACITY,
    observation=see(ClusterState.ABSENT),
)
LOST_LAUNCH = make_attempt(AttemptState.LAUNCHING, observation=see(ClusterState.ENDED, is_preempted=True))
COMPLETED = make_attempt(nodes=(make_node(exit_kind=ExitKind.COMPLETED),))

ROWS: dict[tuple[JobStatus, JobStatus], Callable[[], Snapshot]] = {
    (S.QUEUED, S.PROVISIONING): with_job(S.QUEUED),
    (S.QUEUED, S.PAUSED): with_job(S.QUEUED, holds=USER_HOLD),
    (S.QUEUED, S.STOPPING): with_job(S.QUEUED, **STOP),
    (S.PROVISIONING, S.STARTING): with_job(S.PROVISIONING, make_attempt(AttemptState.LAUNCHING, nodes=(make_node(),))),
    (S.PROVISIONING, S.RECOVERING): with_job(S.PROVISIONING, LOST_LAUNCH),
    (S.PROVISIONING, S.QUEUED): with_job(S.PROVISIONING, NO_CAPACITY),
    (S.PROVISIONING, S.PAUSING): with_job(S.PROVISIONING, launching(), holds=USER_HOLD),
    (S.PROVISIONING, S.STOPPING): with_job(S.PROVISIONING, launching(), **STOP),
    (S.STARTING, S.RUNNING): with_job(S.STARTING, make_attempt()),
    (S.STARTING, S.RECOVERING): with_job(S.STARTING, PREEMPTED),
    (S.STARTING, S.PAUSING): with_job(S.STARTING, make_attempt(has_run=False), holds=USER_HOLD),
    (S.STARTING, S.STOPPING): with_job(S.STARTING, make_attempt(), **STOP),
    (S.RUNNING, S.RECOVERING): with_job(S.RUNNING, PREEMPTED),
    (S.RUNNING, S.PAUSING): with_job(S.RUNNING, make_attempt(), holds=USER_HOLD),
    (S.RUNNING, S.STOPPING): with_job(S.RUNNING, COMPLETED),
    (S.RECOVERING, S.PROVISIONING): with_job(S.RECOVERING, GONE),
    (S.RECOVERING, S.PAUSING): with_job(S.RECOVERING, GONE, holds=USER_HOLD),
    (S.RECOVERING, S.STOPPING): with_job(S.RECOVERING, GONE, **STOP),
    (S.PAUSING, S.PAUSED): with_job(S.PAUSING, GONE, holds=USER_HOLD),
    (S.PAUSING, S.STOPPING): with_job(S.PAUSING, COMPLETED, holds=USER_HOLD),
    (S.PAUSED, S.QUEUED): with_job(S.PAUSED),
    (S.PAUSED, S.STOPPING): with_job(S.PAUSED, holds=USER_HOLD, **STOP),
    (S.STOPPING, S.SUCCEEDED): with_job(S.STOPPING, GONE, end_reason=EndReason.COMPLETED),
    (S.STOPPING, S.FAILED): with_job(S.STOPPING, GONE, end_reason=EndReason.USER_ERROR),
    (S.STOPPING, S.CANCELLED): with_job(S.STOPPING, GONE, end_reason=EndReason.CANCELLED),
    (S.FAILED, S.QUEUED): with_job(S.FAILED, end_reason=EndReason.USER_ERROR, is_retry=True),
}


def test_the_table_is_exactly_the_rows_that_have_an_example() -> None:
    assert {(before, after) for before, follow in JOB_TRANSITIONS.items() for after in follow} == set(ROWS)


@pytest.mark.parametrize(("before", "after"), ROWS, ids=lambda status: str(status))
def test_each_row_of_the_table_is_reached(before: JobStatus, after: JobStatus) -> None:
    snapshot = ROWS[before, after]()
    assert snapshot.job.status is before
    assert decide(snapshot).status is after


@pytest.mark.parametrize(("before", "after"), sorted(set(product(S, S)) - set(ROWS) - {(s, s) for s in S}))
def test_every_other_transition_of_a_job_is_refused(before: JobStatus, after: JobStatus) -> None:
    with pytest.raises(IllegalTransition, match=f"{before} -> {after}"):
        check_job_transition(before, after)


def test_attempts_only_move_forward() -> None:
    order = list(AttemptState)
    for before, after in product(order, order):
        if order.index(after) >= order.index(before):
            check_attempt_transition(before, after)
        else:
            with pytest.raises(IllegalTransition):
                check_attempt_transition(before, after)


def test_only_completion_succeeds_and_only_a_cancel_is_cancelled() -> None:
    assert {reason for reason in EndReason if reason.to_status() is S.SUCCEEDED} == {EndReason.COMPLETED}
    assert {reason for reason in EndReason if reason.to_status() is S.CANCELLED} == {EndReason.CANCELLED}


def test_a_retry_starts_afresh_only_from_failed() -> None:
    for status in (S.SUCCEEDED, S.CANCELLED):
        ended = make_snapshot(make_job(status, end_reason=EndReason.COMPLETED, is_retry=True))
        assert decide(ended).status is status
    waiting = make_snapshot(replace(make_job(S.FAILED), end_reason=EndReason.USER_ERROR))
    assert decide(waiting).status is S.FAILED
