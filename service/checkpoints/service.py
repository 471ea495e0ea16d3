"""Registration, candidates, corruption and retention. Whoever commits must hold the job's current fence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from service.db.models import Checkpoint, Job
from service.db.outbox import emit
from service.domain.retention import Kept, list_prunable
from training.protocol.bucket import checkpoint_name
from training.protocol.job_spec import CheckpointPolicy
from training.protocol.launch_spec import Candidate

MAX_CANDIDATES = 10


class Fenced(Exception):
    """A lower fence than the job's: it is powerless and must stop."""


class CheckpointConflict(Exception):
    """The same step and fence are registered with another digest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NewCheckpoint:
    """A checkpoint that is complete in the bucket; `verified_at` is when its bytes were read again and hashed."""

    job_id: str
    step: int
    fence: int
    manifest_sha256: str
    size_bytes: int
    val_loss: float | None
    world_size: int
    tokens: int
    verified_at: datetime


def register(session: Session, new: NewCheckpoint, *, now: datetime) -> bool:
    """Enter a checkpoint, conditional on the current fence; True when it is new, False for a repeat.

    Errors: Fenced, CheckpointConflict. The conditional UPDATE locks the job's row, so no fence can rise in between.
    """
    held = session.scalar(
        update(Job)
        .where(Job.id == new.job_id, Job.fence == new.fence)
        .values(wakes=Job.wakes)
        .returning(Job.project_id)
        .execution_options(synchronize_session=False)
    )
    if held is None:
        raise Fenced(f"fence {new.fence} of {new.job_id} has been superseded")
    known = session.scalar(
        select(Checkpoint).where(
            Checkpoint.job_id == new.job_id, Checkpoint.step == new.step, Checkpoint.fence == new.fence
        )
    )
    if known is not None:
        if known.manifest_sha256 != new.manifest_sha256:
            raise CheckpointConflict(f"checkpoint {checkpoint_name(new.step, new.fence)} has another digest")
        return False
    _insert(session, new, now=now)
    _advance(session, new)
    size = {"size_bytes": new.size_bytes, "val_loss": new.val_loss, "manifest_sha256": new.manifest_sha256}
    emit(
        session,
        project_id=held,
        job_id=new.job_id,
        kind="checkpoint.registered",
        at=now,
        step=new.step,
        fence=new.fence,
        **size,
    )
    return True


def list_usable(session: Session, job_id: str, *, limit: int | None = None) -> Sequence[Checkpoint]:
    """Verified, not corrupt, not let go; newest first (by step, then fence)."""
    statement = (
        select(Checkpoint)
        .where(Checkpoint.job_id == job_id, Checkpoint.corrupt_at.is_(None), Checkpoint.deleted_at.is_(None))
        .order_by(Checkpoint.step.desc(), Checkpoint.fence.desc())
    )
    return session.scalars(statement.limit(limit) if limit else statement).all()


def list_candidates(session: Session, job_id: str) -> tuple[Candidate, ...]:
    """What a launch may resume from, newest first."""
    return tuple(
        Candidate(step=row.step, fence=row.fence, manifest_sha256=row.manifest_sha256)
        for row in list_usable(session, job_id, limit=MAX_CANDIDATES)
    )


def prune(session: Session, job_id: str, policy: CheckpointPolicy, *, now: datetime) -> tuple[str, ...]:
    """Let go what retention does not keep; the names whose bytes may be deleted."""
    kept = [Kept(step=row.step, fence=row.fence, val_loss=row.val_loss) for row in list_usable(session, job_id)]
    prunable = list_prunable(kept, keep_last=policy.keep_last, keep_best=policy.keep_best)
    for one in prunable:
        session.execute(
            update(Checkpoint)
            .where(Checkpoint.job_id == job_id, Checkpoint.step == one.step, Checkpoint.fence == one.fence)
            .values(deleted_at=now)
        )
    return tuple(checkpoint_name(one.step, one.fence) for one in prunable)


def mark_corrupt(session: Session, job: Job, *, step: int, fence: int, reason: str, now: datetime) -> None:
    """A node found that a checkpoint does not verify. The latest moves back, recorded as an event; repeats do nothing."""
    marked = session.scalar(
        update(Checkpoint)
        .where(
            Checkpoint.job_id == job.id,
            Checkpoint.step == step,
            Checkpoint.fence == fence,
            Checkpoint.corrupt_at.is_(None),
        )
        .values(corrupt_at=now, corrupt_reason=reason[:500])
        .returning(Checkpoint.id)
    )
    if marked is None:
        return
    newest = next(iter(list_usable(session, job.id, limit=1)), None)
    job.checkpoint_step = newest.step if newest else None
    emit(
        session,
        project_id=job.project_id,
        job_id=job.id,
        kind="checkpoint.corrupt",
        at=now,
        step=step,
        fence=fence,
        reason=reason[:500],
        latest_step=job.checkpoint_step,
    )


def _insert(session: Session, new: NewCheckpoint, *, now: datetime) -> None:
    session.add(
        Checkpoint(
            job_id=new.job_id,
            step=new.step,
            fence=new.fence,
            manifest_sha256=new.manifest_sha256,
            size_bytes=new.size_bytes,
            val_loss=new.val_loss,
            world_size=new.world_size,
            tokens=new.tokens,
            verified_at=new.verified_at,
            registered_at=now,
        )
    )
    session.flush()


def _advance(session: Session, new: NewCheckpoint) -> None:
    """The latest never moves back by a registration. Progress was kept, so the count of faults in a row begins anew."""
    job = session.get_one(Job, new.job_id, populate_existing=True)
    if job.checkpoint_step is None or new.step > job.checkpoint_step:
        job.checkpoint_step = new.step
        job.faults_since_progress = 0
