"""Judging one attempt: the order of evidence, silence, drains, and when a cluster is surely gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from service.domain.decision import AttemptChange
from service.domain.judge import is_fenced_off, is_surely_gone, judge_attempt
from service.domain.observations import ClusterState, Strength
from service.domain.snapshot import AttemptView, ExitKind, LaunchFailure
from service.domain.states import AttemptCause, AttemptState
from tests.domain.snapshots import NOW, TERMS, make_attempt, make_node, seconds, see

LONG_AGO = NOW - seconds(86_400)


def judge(attempt: AttemptView, *, returned_at: datetime = LONG_AGO) -> AttemptChange:
    return judge_attempt(attempt, now=NOW, terms=TERMS, returned_at=returned_at)


@pytest.mark.parametrize("exit_kind", [ExitKind.USER_ERROR, ExitKind.INFRASTRUCTURE, ExitKind.NO_USABLE_CHECKPOINT])
def test_a_preempted_cluster_comes_before_its_ranks_exit(exit_kind: ExitKind) -> None:
    seen = see(ClusterState.ENDED, is_preempted=True)
    alone = make_attempt(nodes=(make_node(exit_kind=exit_kind),), observation=seen)
    assert judge(alone).cause is AttemptCause.PREEMPTED


def test_a_gang_whose_peer_is_gone_does_not_blame_the_rank_that_failed_of_it() -> None:
    failed = (make_node(0, exit_kind=ExitKind.USER_ERROR), make_node(1))
    gang = make_attempt(num_nodes=2, nodes=failed, observation=see(ClusterState.DEGRADED, is_preempted=None))
    change = judge(gang)
    assert (change.cause, change.state) == (AttemptCause.PREEMPTED, AttemptState.TERMINATING)


def test_a_gangs_failed_rank_waits_for_a_forced_look_and_for_peers_to_be_shown_gone() -> None:
    def gang(heard_ago: float, strength: Strength) -> AttemptView:
        failed = (make_node(0, heard_ago=heard_ago, exit_kind=ExitKind.USER_ERROR), make_node(1))
        return make_attempt(num_nodes=2, nodes=failed, observation=see(ClusterState.UP, strength))

    settle = TERMS.settle.total_seconds()
    assert judge(gang(settle - 0.1, Strength.FORCED)).cause is None
    assert judge(gang(settle + 0.1, Strength.CACHED)).cause is None
    assert judge(gang(settle + 0.1, Strength.FORCED)).cause is AttemptCause.USER_ERROR


def test_completion_counts_whatever_became_of_the_cluster_since() -> None:
    done = (make_node(0, exit_kind=ExitKind.COMPLETED), make_node(1, exit_kind=ExitKind.COMPLETED))
    for seen in (see(ClusterState.ENDED, is_preempted=True), see(ClusterState.ABSENT), None):
        change = judge(make_attempt(num_nodes=2, nodes=done, observation=seen))
        assert (change.cause, change.state) == (AttemptCause.COMPLETED, AttemptState.TERMINATING)
    draining = make_attempt(AttemptState.DRAINING, num_nodes=2, nodes=done, cause=AttemptCause.PREEMPTED)
    assert judge(draining).cause is AttemptCause.COMPLETED


@pytest.mark.parametrize("kind", [ExitKind.COMPLETED, ExitKind.DRAINED])
def test_a_gangs_node_that_has_finished_and_powered_off_is_not_a_loss(kind: ExitKind) -> None:
    """Node 0 may still upload what all have saved; ending the cluster now would lose it."""
    nodes = (make_node(0), make_node(1, exit_kind=kind))
    state = AttemptState.UP if kind is ExitKind.COMPLETED else AttemptState.DRAINING
    for is_preempted in (False, None):
        gang = make_attempt(
            state, num_nodes=2, nodes=nodes, observation=see(ClusterState.DEGRADED, is_preempted=is_preempted)
        )
        change = judge(gang)
        assert change.state is state
        assert not change.is_loss
    taken = replace(gang, observation=see(ClusterState.DEGRADED, is_preempted=True))
    assert judge(taken).state is AttemptState.TERMINATING


def test_a_node_that_powered_off_by_itself_is_judged_by_its_own_word() -> None:
    ended = see(ClusterState.ENDED, is_preempted=False)
    expected = {
        ExitKind.USER_ERROR: AttemptCause.USER_ERROR,
        ExitKind.DRAINED: AttemptCause.DRAINED,
        ExitKind.NO_USABLE_CHECKPOINT: AttemptCause.NO_USABLE_CHECKPOINT,
        None: AttemptCause.INFRASTRUCTURE,
    }
    for kind, cause in expected.items():
        assert judge(make_attempt(nodes=(make_node(exit_kind=kind),), observation=ended)).cause is cause


def test_absence_right_after_a_launch_proves_nothing() -> None:
    fresh = make_attempt(AttemptState.LAUNCHING, tried_at=NOW - seconds(30), observation=see(ClusterState.ABSENT))
    assert judge(fresh).state is AttemptState.LAUNCHING
    assert not is_surely_gone(fresh, now=NOW, terms=TERMS)
    later = replace(fresh, tried_at=NOW - TERMS.visibility - seconds(1))
    assert judge(later).state is AttemptState.TERMINATING
    assert is_surely_gone(later, now=NOW, terms=TERMS)
    cached = replace(later, observation=see(ClusterState.ABSENT, Strength.CACHED))
    assert judge(cached).state is AttemptState.LAUNCHING
    assert not is_surely_gone(cached, now=NOW, terms=TERMS)


def test_a_launch_whose_worker_died_may_be_under_way_until_the_provider_would_show_it() -> None:
    """No try is on record, but one may have been made right after the intent."""
    ending = make_attempt(
        AttemptState.TERMINATING,
        launched_at=None,
        tried_at=None,
        up_at=None,
        nodes=(),
        intended_at=NOW - seconds(5),
        observation=see(ClusterState.ABSENT),
    )
    assert not is_surely_gone(ending, now=NOW, terms=TERMS)
    assert is_surely_gone(replace(ending, intended_at=NOW - seconds(61)), now=NOW, terms=TERMS)


def test_no_capacity_ends_at_once_and_is_no_loss() -> None:
    refused = make_attempt(
        AttemptState.INTENDED,
        launch_failure=LaunchFailure.NO_CAPACITY,
        tried_at=NOW,
        observation=see(ClusterState.ABSENT),
    )
    change = judge(refused)
    assert (change.cause, change.state, change.is_loss) == (AttemptCause.NO_CAPACITY, AttemptState.TERMINATING, False)
    assert is_surely_gone(refused, now=NOW, terms=TERMS)


def test_silence_counts_only_from_the_services_return() -> None:
    quiet = make_attempt(nodes=(make_node(heard_ago=1000),))
    assert judge(quiet).cause is AttemptCause.SILENT
    assert judge(quiet, returned_at=NOW - TERMS.silence + seconds(1)).cause is None
    assert judge(quiet, returned_at=NOW).cause is None
    assert judge(quiet, returned_at=NOW - TERMS.silence - seconds(1)).cause is AttemptCause.SILENT


def test_a_node_that_never_spoke_has_the_start_up_bound_from_the_services_return() -> None:
    mute = make_attempt(AttemptState.LAUNCHING, launched_at=NOW - TERMS.startup - seconds(1))
    assert judge(mute).cause is AttemptCause.LAUNCH_FAILED
    assert judge(mute, returned_at=NOW - seconds(5)).cause is None
    half = make_attempt(num_nodes=2, launched_at=NOW - TERMS.startup - seconds(1))
    assert judge(half).cause is AttemptCause.LAUNCH_FAILED


def test_a_drain_goes_on_within_its_bound_and_ends_past_it() -> None:
    bound = TERMS.drain + TERMS.margin
    draining = make_attempt(AttemptState.DRAINING, draining_at=NOW - bound)
    assert judge(draining).state is AttemptState.DRAINING
    late = replace(draining, draining_at=NOW - bound - seconds(1))
    assert judge(late).state is AttemptState.TERMINATING
    left = replace(draining, nodes=(make_node(exit_kind=ExitKind.DRAINED),))
    assert judge(left).state is AttemptState.TERMINATING


def test_a_notice_drains_and_is_counted_as_a_preemption_once() -> None:
    warned = make_attempt(nodes=(make_node(notice=True),))
    change = judge(warned)
    assert (change.cause, change.state, change.is_loss) == (AttemptCause.PREEMPTED, AttemptState.DRAINING, True)
    again = judge(replace(warned, state=change.state, cause=change.cause, draining_at=NOW))
    assert (again.state, again.is_loss) == (AttemptState.DRAINING, False)


def test_an_unconfirmed_termination_alarms_once_past_its_bound_and_stays() -> None:
    stuck = make_attempt(AttemptState.TERMINATING, terminating_at=NOW - TERMS.teardown - seconds(1))
    change = judge(stuck)
    assert (change.state, change.is_alarm) == (AttemptState.TERMINATING, True)
    assert not judge(replace(stuck, is_alarmed=True)).is_alarm
    assert not judge(replace(stuck, terminating_at=NOW - TERMS.teardown)).is_alarm


def test_a_gone_attempt_costs_until_the_provider_says_it_ended() -> None:
    ended_at = NOW - seconds(42)
    gone = make_attempt(AttemptState.TERMINATING, observation=see(ClusterState.ENDED, ended_at=ended_at))
    assert judge(gone) == AttemptChange(fence=1, state=AttemptState.GONE, gone_at=ended_at)


def test_fenced_off_only_after_grant_drain_and_margin() -> None:
    edge = make_attempt(grant_until=NOW - TERMS.fence_off)
    assert not is_fenced_off(edge, now=NOW, terms=TERMS)
    assert is_fenced_off(edge, now=NOW + seconds(0.001), terms=TERMS)
