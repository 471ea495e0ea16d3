"""Judging one attempt: from what its nodes said and the provider showed to its next state and the cause of its end.

Order of evidence: what a node committed to before it left (completed) comes first, then a cluster that is gone, then the
ranks' exits, then silence. A cluster that is gone comes before "the ranks exited non-zero", or each preemption of a gang
would read as a user's error. Unknown is not dead: without an observation only the nodes' own words count.
"""

from __future__ import annotations

from datetime import datetime

from service.domain.decision import AttemptChange
from service.domain.observations import ClusterState, Strength
from service.domain.snapshot import AttemptView, ExitKind, LaunchFailure, NodeView
from service.domain.states import ATTEMPT_ORDER, AttemptCause, AttemptState
from service.domain.terms import Terms

_GONE_STATES = frozenset({ClusterState.ABSENT, ClusterState.ENDED})
_LOST_STATES = _GONE_STATES | {ClusterState.DEGRADED}

_EXIT_CAUSES = {
    ExitKind.NO_USABLE_CHECKPOINT: AttemptCause.NO_USABLE_CHECKPOINT,
    ExitKind.USER_ERROR: AttemptCause.USER_ERROR,
    ExitKind.INFRASTRUCTURE: AttemptCause.INFRASTRUCTURE,
}
"""Exits of any one node that end the gang, gravest first."""

_DRAIN_CAUSES = frozenset({AttemptCause.PREEMPTED, AttemptCause.DRAINED})

LOSSES = frozenset(
    {AttemptCause.PREEMPTED, AttemptCause.INFRASTRUCTURE, AttemptCause.SILENT, AttemptCause.LAUNCH_FAILED}
)
FAULTS = LOSSES - {AttemptCause.PREEMPTED}


def judge_attempt(attempt: AttemptView, *, now: datetime, terms: Terms, returned_at: datetime) -> AttemptChange:
    """The attempt's next state; the same state when nothing follows from the evidence."""
    if attempt.state is AttemptState.TERMINATING:
        return _judge_terminating(attempt, now, terms)
    is_complete = _have_all_exited(attempt, ExitKind.COMPLETED)
    cause = AttemptCause.COMPLETED if is_complete else attempt.cause or _find_cause(attempt, now, terms, returned_at)
    state = _next_state(attempt, cause, now, terms)
    return AttemptChange(
        fence=attempt.fence,
        state=max(state, attempt.state, key=ATTEMPT_ORDER.index),
        cause=cause,
        is_loss=attempt.cause is None and cause in LOSSES,
    )


def is_surely_gone(attempt: AttemptView, *, now: datetime, terms: Terms) -> bool:
    """The provider, asked afresh, knows no node of it, and no launch of it can still be under way unseen."""
    observation = attempt.observation
    if observation is None or observation.strength < Strength.FORCED or observation.state not in _GONE_STATES:
        return False
    return observation.state is ClusterState.ENDED or _is_absence_proof(attempt, now, terms)


def is_fenced_off(attempt: AttemptView, *, now: datetime, terms: Terms) -> bool:
    """Even if a node of it still exists, it has drained and powered off by itself: its grant is long over."""
    return now > attempt.grant_until + terms.fence_off


def _judge_terminating(attempt: AttemptView, now: datetime, terms: Terms) -> AttemptChange:
    if is_surely_gone(attempt, now=now, terms=terms):
        ended_at = attempt.observation.ended_at if attempt.observation else None
        return AttemptChange(fence=attempt.fence, state=AttemptState.GONE, cause=attempt.cause, gone_at=ended_at or now)
    since = attempt.terminating_at or now
    is_late = now > since + terms.teardown and not attempt.is_alarmed
    return AttemptChange(fence=attempt.fence, state=AttemptState.TERMINATING, cause=attempt.cause, is_alarm=is_late)


def _next_state(attempt: AttemptView, cause: AttemptCause | None, now: datetime, terms: Terms) -> AttemptState:
    observation = attempt.observation
    is_draining = attempt.state is AttemptState.DRAINING or cause in _DRAIN_CAUSES
    if _is_lost(attempt, now, terms) or (cause is not None and cause not in _DRAIN_CAUSES):
        return AttemptState.TERMINATING
    if is_draining:
        return AttemptState.DRAINING if _may_drain(attempt, now, terms) else AttemptState.TERMINATING
    if attempt.nodes or (observation is not None and observation.state is ClusterState.UP):
        return AttemptState.UP
    is_asked_for = attempt.launched_at is not None or (
        observation is not None and observation.state is ClusterState.PENDING
    )
    return AttemptState.LAUNCHING if is_asked_for else attempt.state


def _may_drain(attempt: AttemptView, now: datetime, terms: Terms) -> bool:
    """Some node has not left yet, and the drain is within its bound."""
    has_someone = any(node.exit_kind is None for node in attempt.nodes)
    return has_someone and now <= (attempt.draining_at or now) + terms.drain + terms.margin


def _find_cause(attempt: AttemptView, now: datetime, terms: Terms, returned_at: datetime) -> AttemptCause | None:
    if attempt.launch_failure in (LaunchFailure.NO_CAPACITY, LaunchFailure.REFUSED):
        is_refused = attempt.launch_failure is LaunchFailure.REFUSED
        return AttemptCause.LAUNCH_FAILED if is_refused else AttemptCause.NO_CAPACITY
    return (
        _cause_of_loss(attempt, now, terms)
        or _cause_of_exit(attempt, now, terms)
        or _cause_of_delay(attempt, now, terms, returned_at)
    )


def _cause_of_loss(attempt: AttemptView, now: datetime, terms: Terms) -> AttemptCause | None:
    if any(node.has_notice for node in attempt.nodes):
        return AttemptCause.PREEMPTED
    if not _is_lost(attempt, now, terms):
        return None
    observation = attempt.observation
    assert observation is not None
    if observation.failure is not None and not attempt.nodes:
        return AttemptCause.NO_CAPACITY if observation.failure == "no_capacity" else AttemptCause.LAUNCH_FAILED
    if observation.is_preempted is not None:
        return AttemptCause.PREEMPTED if observation.is_preempted else _cause_of_leaving(attempt)
    has_own_end = attempt.num_nodes == 1 and any(node.exit_kind is not None for node in attempt.nodes)
    if has_own_end:
        return _cause_of_leaving(attempt)
    return AttemptCause.PREEMPTED if attempt.is_spot else AttemptCause.INFRASTRUCTURE


def _cause_of_leaving(attempt: AttemptView) -> AttemptCause:
    """A node that was not taken powered itself off: after its exit, or for a reason it could not tell."""
    kinds = {node.exit_kind for node in attempt.nodes}
    for kind, cause in _EXIT_CAUSES.items():
        if kind in kinds:
            return cause
    return AttemptCause.DRAINED if ExitKind.DRAINED in kinds else AttemptCause.INFRASTRUCTURE


def _cause_of_exit(attempt: AttemptView, now: datetime, terms: Terms) -> AttemptCause | None:
    for kind, cause in _EXIT_CAUSES.items():
        exited = [node for node in attempt.nodes if node.exit_kind is kind]
        if exited and _is_settled(attempt, exited, now, terms):
            return cause
    if any(node.exit_kind is ExitKind.DRAINED for node in attempt.nodes):
        return AttemptCause.DRAINED
    return None


def _is_settled(attempt: AttemptView, exited: list[NodeView], now: datetime, terms: Terms) -> bool:
    """In a gang a rank may fail because a peer's node is gone, which the provider shows a little later: look again first."""
    if attempt.num_nodes == 1:
        return True
    observation = attempt.observation
    told_at = min(node.heard_at for node in exited)
    return observation is not None and observation.strength is Strength.FORCED and now >= told_at + terms.settle


def _cause_of_delay(attempt: AttemptView, now: datetime, terms: Terms, returned_at: datetime) -> AttemptCause | None:
    if not attempt.nodes:
        since = max(attempt.launched_at or attempt.intended_at, returned_at)
        return AttemptCause.LAUNCH_FAILED if now > since + terms.startup else None
    quiet = [node for node in attempt.nodes if node.exit_kind is None]
    heard_at = min((node.heard_at for node in quiet), default=now)
    if quiet and now > max(heard_at, returned_at) + terms.silence:
        return AttemptCause.SILENT
    has_missing_node = len(attempt.nodes) < attempt.num_nodes
    since = max(attempt.launched_at or attempt.intended_at, returned_at)
    return AttemptCause.LAUNCH_FAILED if has_missing_node and now > since + terms.startup else None


def _is_lost(attempt: AttemptView, now: datetime, terms: Terms) -> bool:
    """The cluster was there (or surely should be) and is gone, whole or in part."""
    observation = attempt.observation
    if observation is None or observation.state not in _LOST_STATES:
        return False
    if observation.state is ClusterState.DEGRADED and observation.is_preempted is not True and _has_finished(attempt):
        return False
    if observation.state is not ClusterState.ABSENT:
        return True
    if attempt.launched_at is None and not attempt.nodes:
        return False
    return observation.strength is Strength.FORCED and _is_absence_proof(attempt, now, terms)


def _has_finished(attempt: AttemptView) -> bool:
    """A node that is done has powered itself off, while another may still upload what all have saved."""
    return any(node.exit_kind in (ExitKind.COMPLETED, ExitKind.DRAINED) for node in attempt.nodes)


def _is_absence_proof(attempt: AttemptView, now: datetime, terms: Terms) -> bool:
    """Providers show a new cluster late: right after a launch, absence means nothing. One may have followed the intent
    at once, unrecorded."""
    tried_at = attempt.tried_at or attempt.intended_at
    was_seen = attempt.up_at is not None or bool(attempt.nodes)
    is_certain = attempt.launch_failure in (LaunchFailure.NO_CAPACITY, LaunchFailure.REFUSED)
    return was_seen or is_certain or now > tried_at + terms.visibility


def _have_all_exited(attempt: AttemptView, kind: ExitKind) -> bool:
    exits = [node.exit_kind for node in attempt.nodes]
    return len(exits) == attempt.num_nodes and all(exit_kind is kind for exit_kind in exits)
