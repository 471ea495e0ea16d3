"""The promises that hold after every step of every test: G1-G4 here, G5 by `World.drain` (each job ends or progresses)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from itertools import pairwise

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.agents.service import lock_current
from service.checkpoints.service import Fenced
from service.db.models import Attempt, Budget, Checkpoint, Job, LedgerEntry
from service.domain.money import accrued_nano, reserved_nano
from service.domain.states import TERMINAL_STATUSES, AttemptState, JobStatus
from service.ledger.service import COMPUTE
from worker.sweep.orphans import CATEGORY as ORPHAN


def check_invariants(session: Session, billed: Collection[str]) -> None:
    """`billed` are the names of the clusters that cost money now, whatever the provider's answers say."""
    jobs = list(session.scalars(select(Job)))
    attempts = list(session.scalars(select(Attempt).order_by(Attempt.fence)))
    entries = list(session.scalars(select(LedgerEntry).order_by(LedgerEntry.id)))
    checkpoints = list(session.scalars(select(Checkpoint)))
    for job in jobs:
        check_one_may_commit(job, [one for one in attempts if one.job_id == job.id])
        check_latest_checkpoint(job, [one for one in checkpoints if one.job_id == job.id])
    check_every_cluster_was_intended(attempts, billed)
    check_windows(attempts, entries)
    check_budgets(list(session.scalars(select(Budget))), jobs, attempts, entries)


def check_one_may_commit(job: Job, attempts: Sequence[Attempt]) -> None:
    """G1. Of all attempts only the one with the job's fence passes the door that every commit goes through."""
    current = [one.fence for one in attempts if one.fence >= job.fence and one.state != AttemptState.GONE]
    assert current in ([], [job.fence]), f"{job.id}: attempts {current} could commit at fence {job.fence}"
    if job.status == JobStatus.PAUSED or job.status in TERMINAL_STATUSES:
        assert all(one.state == AttemptState.GONE for one in attempts), f"{job.id} is {job.status} and owns a cluster"


def check_fence_is_kept(session: Session, job: Job, attempts: Sequence[Attempt]) -> None:
    """G1 once more, by asking the door itself for every attempt that ever was."""
    passed = []
    for attempt in attempts:
        try:
            lock_current(session, attempt.id, fence=attempt.fence)
        except Fenced:
            continue
        passed.append(attempt.fence)
    assert passed in ([], [job.fence])


def check_every_cluster_was_intended(attempts: Sequence[Attempt], billed: Collection[str]) -> None:
    """G2: whatever is billed was intended first. (That the rest is reaped, `World.reap` asserts.)"""
    assert set(billed) <= {one.cluster_name for one in attempts}


def check_windows(attempts: Sequence[Attempt], entries: Sequence[LedgerEntry]) -> None:
    """G3: an attempt's windows follow each other without gap or overlap up to `accrued_until`, and are its cost."""
    of_attempt: defaultdict[str | None, list[LedgerEntry]] = defaultdict(list)
    for entry in entries:
        if entry.category == COMPUTE:
            of_attempt[entry.attempt_id].append(entry)
    for attempt in attempts:
        windows = sorted(of_attempt[attempt.id], key=lambda one: one.window_start)
        assert all(one.window_start < one.window_end for one in windows)
        assert all(one.window_end == two.window_start for one, two in pairwise(windows)), "gap or overlap"
        assert attempt.cost_nano == sum(one.amount_nano for one in windows)
        if windows:
            assert attempt.accrued_until == windows[-1].window_end


def check_budgets(
    budgets: Sequence[Budget], jobs: Sequence[Job], attempts: Sequence[Attempt], entries: Sequence[LedgerEntry]
) -> None:
    """G3: the three books agree, what is held reaches, and a cap is passed only for the stated causes."""
    for attempt in attempts:
        is_gone = attempt.state == AttemptState.GONE
        span = attempt.covered_until - attempt.accrued_until
        needed = 0 if is_gone else reserved_nano(attempt.ceiling_hourly_nano, span, attempt.num_nodes)
        assert attempt.reserved_nano >= needed
        assert attempt.reserved_nano == 0 or not is_gone
    for budget in budgets:
        covered = {one.id for one in jobs if one.project_id == budget.project_id and budget.job_id in (None, one.id)}
        held = sum(one.reserved_nano for one in attempts if one.job_id in covered)
        counted = [entry for entry in entries if entry.job_id in covered]
        assert budget.reserved_nano == held
        assert budget.spent_nano == sum(entry.amount_nano for entry in counted)
        excess = _stated_excess({one.id: one for one in attempts}, counted)
        assert budget.spent_nano + budget.reserved_nano <= budget.cap_nano + excess


def _stated_excess(attempts: dict[str, Attempt], entries: Sequence[LedgerEntry]) -> int:
    """Nano-dollars that may lie past a cap: time past the teardown bound, prices above the ceiling, and orphans."""
    excess = 0
    for entry in entries:
        attempt = attempts.get(entry.attempt_id or "")
        if entry.category == ORPHAN or attempt is None:
            excess += entry.amount_nano
            continue
        start = max(entry.window_start, attempt.covered_until)
        if entry.window_end > start:
            excess += accrued_nano(entry.hourly_nano, entry.window_end - start, entry.num_nodes) + 1
        above = max(0, entry.hourly_nano - attempt.ceiling_hourly_nano)
        excess += accrued_nano(above, entry.window_end - entry.window_start, entry.num_nodes) + (above > 0)
    return excess


def check_latest_checkpoint(job: Job, checkpoints: Sequence[Checkpoint]) -> None:
    """G4: the latest is the newest that is registered, not corrupt and not let go."""
    usable = [one.step for one in checkpoints if one.corrupt_at is None and one.deleted_at is None]
    assert job.checkpoint_step == max(usable, default=None)
