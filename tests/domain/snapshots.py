"""Snapshots for tests of the decision: builders with harmless defaults, Hypothesis strategies, and what applying one does."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from service.domain.decision import AttemptChange, Decision
from service.domain.judge import FAULTS
from service.domain.observations import ClusterState, Observation, Strength
from service.domain.offers import Market, Offer
from service.domain.snapshot import (
    AttemptView,
    Candidate,
    ExitKind,
    JobView,
    LaunchFailure,
    MoneyView,
    NodeView,
    Snapshot,
)
from service.domain.states import AttemptCause, AttemptState, EndReason, Hold, JobStatus, StatusReason
from service.domain.terms import Terms

NOW = datetime(2026, 3, 29, 0, 59, 59, 250_000, tzinfo=UTC)
TERMS = Terms()
OFFER = Offer(
    provider="fake",
    region="fake-a",
    zone="fake-a-1",
    instance_type="fake.gpu1",
    market=Market.SPOT,
    accelerators="FAKE:1",
    num_cpus=4,
    memory_gib=16.0,
    on_demand_hourly_nano=10_000_000_000,
)
CANDIDATE = Candidate(offer=OFFER, hourly_nano=3_000_000_000, ceiling_hourly_nano=10_000_000_000)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def make_node(
    rank: int = 0, *, heard_ago: float = 1, exit_kind: ExitKind | None = None, notice: bool = False
) -> NodeView:
    return NodeView(node_rank=rank, heard_at=NOW - seconds(heard_ago), has_notice=notice, exit_kind=exit_kind)


def see(state: ClusterState, strength: Strength = Strength.FORCED, **more: Any) -> Observation:
    return Observation(cluster_name="gdw-x-1", state=state, at=NOW, strength=strength, **more)


def make_attempt(state: AttemptState = AttemptState.UP, **more: Any) -> AttemptView:
    """One attempt of one node that runs, unless told otherwise; times that its state implies are set."""
    is_asked_for = state is not AttemptState.INTENDED
    is_up = state in (AttemptState.UP, AttemptState.DRAINING, AttemptState.TERMINATING)
    values: dict[str, Any] = {
        "fence": 1,
        "cause": None,
        "offer_id": OFFER.id,
        "is_spot": True,
        "num_nodes": 1,
        "intended_at": NOW - seconds(120),
        "launched_at": NOW - seconds(119) if is_asked_for else None,
        "tried_at": NOW - seconds(118) if is_asked_for else None,
        "next_try_at": None,
        "launch_tries": 1 if is_asked_for else 0,
        "launch_failure": None,
        "up_at": NOW - seconds(60) if is_up else None,
        "has_run": is_up,
        "draining_at": NOW - seconds(10) if state is AttemptState.DRAINING else None,
        "terminating_at": NOW - seconds(5) if state is AttemptState.TERMINATING else None,
        "is_alarmed": False,
        "grant_until": NOW + seconds(600),
        "nodes": (make_node(),) if is_up else (),
        "observation": see(ClusterState.UP if is_up else ClusterState.PENDING if is_asked_for else ClusterState.ABSENT),
    }
    return AttemptView(state=state, **(values | more))


def make_job(status: JobStatus = JobStatus.RUNNING, **more: Any) -> JobView:
    values: dict[str, Any] = {
        "reason": None,
        "end_reason": EndReason.CANCELLED if status is JobStatus.STOPPING else None,
        "holds": frozenset[Hold](),
        "stop": None,
        "is_stop_now": False,
        "is_retry": False,
        "num_nodes": 1,
        "fence": 1,
        "faults_since_progress": 0,
        "max_faults": 5,
        "not_before": None,
        "launch_failure_count": 0,
        "first_grant": timedelta(minutes=25),
        "deadline": None,
        "is_deadline_missed": False,
        "stops_on_deadline": False,
        "jitter": 0.5,
    }
    return JobView(status=status, **(values | more))


def make_snapshot(job: JobView, *attempts: AttemptView, **more: Any) -> Snapshot:
    values: dict[str, Any] = {
        "now": NOW,
        "terms": TERMS,
        "candidates": (CANDIDATE,),
        "reason_for_none": StatusReason.NO_OFFER,
        "money": MoneyView(available_nano=None, unspent_nano=None),
        "launch_slots": 10,
        "service_returned_at": NOW - timedelta(hours=2),
        "fence_floor": job.fence,
    }
    return Snapshot(job=job, attempts=attempts, **(values | more))


# ---- what intend does to the views ----------------------------------------------------------------------------------


def apply(snapshot: Snapshot, decision: Decision) -> Snapshot:
    """The snapshot after the decision is written down, with the same evidence and at the same instant."""
    changes = {change.fence: change for change in decision.attempts}
    changed = [_apply_change(view, changes.get(view.fence)) for view in snapshot.attempts]
    live = tuple(view for view in changed if view.state is not AttemptState.GONE)
    if decision.new_attempt is not None:
        new = decision.new_attempt
        fresh = make_attempt(AttemptState.INTENDED, fence=new.fence, grant_until=new.grant_until, intended_at=NOW)
        live = (*live, replace(fresh, observation=None, num_nodes=snapshot.job.num_nodes))
    return replace(snapshot, attempts=live, job=_apply_job(snapshot.job, decision))


def _apply_change(view: AttemptView, change: AttemptChange | None) -> AttemptView:
    if change is None:
        return view
    after = replace(view, state=change.state, cause=view.cause or change.cause)
    if change.cause is AttemptCause.COMPLETED:
        after = replace(after, cause=change.cause)
    if change.state is not view.state:
        after = replace(after, next_try_at=None)
        if change.state is AttemptState.DRAINING:
            after = replace(after, draining_at=NOW)
        if change.state is AttemptState.TERMINATING:
            after = replace(after, terminating_at=NOW)
        if change.state is AttemptState.UP:
            after = replace(after, up_at=NOW)
    if view.launched_at is None and change.state in (AttemptState.LAUNCHING, AttemptState.UP):
        after = replace(after, launched_at=NOW, launch_failure=None)
    return replace(after, is_alarmed=view.is_alarmed or change.is_alarm)


def _apply_job(job: JobView, decision: Decision) -> JobView:
    faults = sum(change.is_loss and change.cause in FAULTS for change in decision.attempts)
    after = replace(
        job,
        status=decision.status,
        reason=decision.reason,
        end_reason=job.end_reason or decision.end_reason,
        holds=job.holds | ({decision.add_hold} if decision.add_hold else frozenset()),
        faults_since_progress=job.faults_since_progress + faults,
        is_deadline_missed=job.is_deadline_missed or decision.is_deadline_missed,
        fence=decision.new_attempt.fence if decision.new_attempt else job.fence,
    )
    if job.status is JobStatus.FAILED and decision.status is JobStatus.QUEUED:
        return replace(after, is_retry=False, end_reason=None, stop=None, faults_since_progress=0)
    return after


# ---- strategies -----------------------------------------------------------------------------------------------------

_AGES = st.sampled_from([0, 0.5, 1, 2.9, 3.1, 30, 59, 61, 119, 121, 149, 151, 299, 301, 599, 601, 1000, 7200])
_PAST = _AGES.map(lambda age: NOW - seconds(age))
_NEAR = st.sampled_from([-7200, -301, -151, -150, -149, -1, 0, 1, 60, 600]).map(lambda offset: NOW + seconds(offset))


@st.composite
def nodes(draw: st.DrawFn, num_nodes: int) -> tuple[NodeView, ...]:
    ranks = draw(st.sets(st.integers(0, num_nodes - 1)))
    exits = st.none() | st.sampled_from(ExitKind)
    return tuple(
        NodeView(node_rank=rank, heard_at=draw(_PAST), has_notice=draw(st.booleans()), exit_kind=draw(exits))
        for rank in sorted(ranks)
    )


def observations() -> st.SearchStrategy[Observation | None]:
    return st.none() | st.builds(
        Observation,
        cluster_name=st.just("gdw-x-1"),
        state=st.sampled_from(ClusterState),
        at=st.just(NOW),
        strength=st.sampled_from(Strength),
        created_at=st.none() | _PAST,
        ended_at=st.none() | _PAST,
        is_preempted=st.sampled_from([None, True, False]),
        failure=st.sampled_from([None, None, "no_capacity", "quota"]),
    )


@st.composite
def attempts(draw: st.DrawFn, fence: int, num_nodes: int) -> AttemptView:
    """Any attempt that intend and record can have written, with any evidence."""
    state = draw(st.sampled_from([state for state in AttemptState if state is not AttemptState.GONE]))
    heard = () if state in (AttemptState.INTENDED, AttemptState.LAUNCHING) else draw(nodes(num_nodes))
    is_ending = state in (AttemptState.DRAINING, AttemptState.TERMINATING)
    causes = {
        AttemptState.DRAINING: st.sampled_from([None, AttemptCause.PREEMPTED, AttemptCause.DRAINED]),
        AttemptState.TERMINATING: st.none() | st.sampled_from(AttemptCause),
    }
    is_intended = state is AttemptState.INTENDED
    return make_attempt(
        state,
        fence=fence,
        num_nodes=num_nodes,
        cause=draw(causes.get(state, st.none())),
        is_spot=draw(st.booleans()),
        intended_at=NOW - seconds(7300),
        launched_at=None if is_intended else draw(_PAST),
        tried_at=draw(st.none() | _PAST),
        next_try_at=draw(st.none() | _NEAR),
        launch_tries=draw(st.integers(0, 8)) if is_intended else 1,
        launch_failure=draw(st.none() | st.sampled_from(LaunchFailure)) if is_intended else None,
        has_run=draw(st.booleans()) if heard else False,
        draining_at=draw(_PAST) if state is AttemptState.DRAINING else None,
        terminating_at=draw(_PAST) if state is AttemptState.TERMINATING else None,
        is_alarmed=draw(st.booleans()) if is_ending else False,
        grant_until=draw(_NEAR),
        nodes=heard,
        observation=draw(observations()),
        is_above_ceiling=draw(st.booleans()),
    )


@st.composite
def snapshots(draw: st.DrawFn, statuses: tuple[JobStatus, ...] = tuple(JobStatus)) -> Snapshot:
    """Any snapshot; jobs that are paused or have ended have no live attempt, as every decision sees to."""
    status = draw(st.sampled_from(statuses))
    num_nodes = draw(st.integers(1, 3))
    is_empty = status in (JobStatus.PAUSED, JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)
    fences = () if is_empty else draw(st.sampled_from([(), (1,), (2,), (1, 2)]))
    has_end = status in (JobStatus.STOPPING, JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED)
    job = make_job(
        status,
        reason=draw(st.none() | st.sampled_from(StatusReason)),
        end_reason=draw(st.sampled_from(EndReason)) if has_end else None,
        holds=draw(st.sampled_from([frozenset(), frozenset(), frozenset({Hold.USER}), frozenset(Hold)])),
        stop=draw(st.sampled_from([None, None, None, EndReason.CANCELLED])),
        is_stop_now=draw(st.booleans()),
        is_retry=status is JobStatus.FAILED and draw(st.booleans()),
        num_nodes=num_nodes,
        fence=2,
        faults_since_progress=draw(st.integers(0, 6)),
        not_before=draw(st.sampled_from([None, None, NOW - seconds(1), NOW + seconds(60)])),
        launch_failure_count=draw(st.integers(0, 40)),
        deadline=draw(st.none() | _NEAR),
        is_deadline_missed=draw(st.booleans()),
        stops_on_deadline=draw(st.booleans()),
        jitter=draw(st.floats(0, 0.999)),
    )
    unspent = draw(st.none() | st.integers(-(10**9), 10**11))
    available = None if unspent is None else unspent - draw(st.integers(0, 10**11))
    return make_snapshot(
        job,
        *(draw(attempts(fence, num_nodes)) for fence in fences),
        candidates=draw(st.sampled_from([(CANDIDATE,), (CANDIDATE,), ()])),
        reason_for_none=draw(st.sampled_from([StatusReason.NO_OFFER, StatusReason.PRICE_UNKNOWN])),
        money=MoneyView(available_nano=available, unspent_nano=unspent),
        launch_slots=draw(st.sampled_from([5, 1, 0, -1])),
        service_returned_at=draw(_PAST),
        fence_floor=draw(st.integers(2, 9)),
    )
