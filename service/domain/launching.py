"""Launching: intend an attempt on the best candidate, or stay and say why not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from service.domain.decision import IMMEDIATELY, Decision, NewAttempt
from service.domain.grants import covered_until
from service.domain.judge import is_fenced_off
from service.domain.judged import Judged, keep, list_changes, wait
from service.domain.money import floor_second, reserved_nano
from service.domain.snapshot import Candidate, Snapshot
from service.domain.states import Hold, JobStatus, StatusReason


def try_launch(snapshot: Snapshot, judged: tuple[Judged, ...], *, waiting: JobStatus) -> Decision:
    """Intend a launch on the best candidate, or stay and say why not."""
    job, now = snapshot.job, snapshot.now
    if not all(not one.is_live or is_fenced_off(one.view, now=now, terms=snapshot.terms) for one in judged):
        return keep(snapshot, judged, job.reason)
    if job.not_before is not None and now < job.not_before:
        return wait(snapshot, judged, waiting, job.reason, after=job.not_before - now)
    if not snapshot.candidates:
        return wait(snapshot, judged, waiting, snapshot.reason_for_none, after=_pause_for(snapshot))
    if snapshot.launch_slots < 1:
        return wait(snapshot, judged, waiting, StatusReason.LAUNCH_RATE, after=_spread(snapshot))
    candidate = snapshot.candidates[0]
    need = first_reservation(snapshot, candidate)
    money = snapshot.money
    if money.unspent_nano is not None and need > money.unspent_nano:
        held = wait(snapshot, judged, waiting, StatusReason.BUDGET_EXHAUSTED, after=IMMEDIATELY)
        return replace(held, add_hold=Hold.BUDGET, need_nano=need)
    if money.available_nano is not None and need > money.available_nano:
        return wait(snapshot, judged, waiting, StatusReason.BUDGET_RESERVED, after=_spread(snapshot))
    return Decision(
        status=JobStatus.PROVISIONING,
        attempts=list_changes(judged),
        new_attempt=NewAttempt(
            fence=max(snapshot.fence_floor, job.fence) + 1, candidate=candidate, grant_until=now + job.first_grant
        ),
        need_nano=need,
    )


def first_reservation(snapshot: Snapshot, candidate: Candidate) -> int:
    """Nano-dollars that a launch must hold: the first grant and the tail, at the ceiling, for every node.

    From the whole second before to the one after: that is how the ledger counts, and what it counts must be held.
    """
    covers = covered_until(snapshot.now + snapshot.job.first_grant, snapshot.terms)
    span = covers - floor_second(snapshot.now)
    return reserved_nano(candidate.ceiling_hourly_nano, span, snapshot.job.num_nodes)


def _pause_for(snapshot: Snapshot) -> timedelta:
    """Looking again costs a query: offers without capacity are passed over by the clock, not by waiting here."""
    is_full = snapshot.reason_for_none is StatusReason.NO_CAPACITY
    return _spread(snapshot) if is_full else snapshot.terms.poll


def _spread(snapshot: Snapshot) -> timedelta:
    """The jobs' own jitter keeps many that wait for the same thing from coming back together."""
    return snapshot.terms.backoff * (0.75 + 0.5 * snapshot.job.jitter)
