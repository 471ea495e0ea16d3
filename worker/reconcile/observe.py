"""Observe: what the provider and the bucket show. No transaction is open here, and no answer is not an answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

import structlog
from obstore.exceptions import BaseError
from obstore.store import ObjectStore

from service.checkpoints.service import NewCheckpoint
from service.domain.observations import Observation
from service.domain.snapshot import AttemptView, Snapshot
from service.domain.states import AttemptState, JobStatus, StatusReason
from service.domain.terms import Terms
from service.ids import cluster_name
from training.protocol.bucket import CheckpointInvalid, list_checkpoints, read_manifest, verify_checkpoint
from worker.provision.protocol import ProviderUnavailable, Provisioner
from worker.reconcile.load import Loaded

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """The snapshot to decide on, and complete checkpoints that the bucket has and the register lacks."""

    snapshot: Snapshot
    found: tuple[NewCheckpoint, ...] = ()


def observe_job(
    loaded: Loaded,
    *,
    provisioner: Provisioner,
    bucket: Callable[[], ObjectStore],
    terms: Terms,
    now: datetime,
) -> Observed:
    """Look at every live attempt's cluster; before a launch, look also for fences and checkpoints that nobody told of."""
    attempts = tuple(
        replace(view, observation=_look(provisioner, loaded.job_id, view, terms, now)) for view in loaded.attempts
    )
    snapshot = Snapshot(
        now=now,
        terms=terms,
        job=loaded.job,
        attempts=attempts,
        candidates=loaded.candidates,
        reason_for_none=loaded.reason_for_none,
        money=loaded.money,
        launch_slots=loaded.launch_slots,
        service_returned_at=loaded.service_returned_at,
        fence_floor=loaded.job.fence,
    )
    if not _may_launch(loaded):
        return Observed(snapshot=snapshot)
    try:
        floor, found = _survey(loaded, provisioner=provisioner, bucket=bucket(), now=now)
    except (ProviderUnavailable, BaseError, OSError) as error:
        log.warning("survey_failed", job_id=loaded.job_id, error=type(error).__name__)
        unknown = replace(snapshot, candidates=(), reason_for_none=StatusReason.PROVIDER_UNAVAILABLE)
        return Observed(snapshot=unknown)
    return Observed(snapshot=replace(snapshot, fence_floor=floor), found=found)


def _look(provisioner: Provisioner, job_id: str, view: AttemptView, terms: Terms, now: datetime) -> Observation | None:
    try:
        return provisioner.observe(cluster_name(job_id, view.fence), is_forced=_needs_force(view, terms, now))
    except ProviderUnavailable:
        return None


def _needs_force(view: AttemptView, terms: Terms, now: datetime) -> bool:
    """A stronger look where something is about to be judged: an end, an exit, a notice, or a silence that begins."""
    if view.state in (AttemptState.TERMINATING, AttemptState.DRAINING, AttemptState.INTENDED):
        return True
    has_news = any(node.exit_kind is not None or node.has_notice for node in view.nodes)
    is_quiet = any(now - node.heard_at > terms.silence / 4 for node in view.nodes) or not view.nodes
    return has_news or is_quiet


def _may_launch(loaded: Loaded) -> bool:
    is_waiting = loaded.job.status in (JobStatus.QUEUED, JobStatus.RECOVERING)
    return is_waiting and not loaded.job.holds and loaded.job.stop is None and bool(loaded.candidates)


def _survey(
    loaded: Loaded, *, provisioner: Provisioner, bucket: ObjectStore, now: datetime
) -> tuple[int, tuple[NewCheckpoint, ...]]:
    """The highest fence anywhere, and the current fence's complete checkpoints that were never registered."""
    in_bucket = list_checkpoints(bucket, loaded.job_id)
    fences = [loaded.job.fence, *(fence for _, fence in in_bucket)]
    fences += [one.fence for one in provisioner.list_clusters() if one.job_id == loaded.job_id]
    unknown = [
        (step, fence)
        for step, fence in in_bucket
        if fence == loaded.job.fence and (step, fence) not in loaded.known_checkpoints
    ]
    found = tuple(new for step, fence in sorted(unknown) if (new := _import(bucket, loaded.job_id, step, fence, now)))
    return max(fences), found


def _import(bucket: ObjectStore, job_id: str, step: int, fence: int, now: datetime) -> NewCheckpoint | None:
    """A checkpoint whose node died between the manifest and the register; read again and hashed here. None if torn."""
    try:
        answer = read_manifest(bucket, job_id, step, fence)
        if answer is None:
            return None
        manifest, manifest_sha256 = answer
        verify_checkpoint(bucket, job_id, step, fence, manifest)
    except CheckpointInvalid as error:
        log.warning("unregistered_checkpoint_invalid", job_id=job_id, step=step, fence=fence, reason=str(error))
        return None
    return NewCheckpoint(
        job_id=job_id,
        step=step,
        fence=fence,
        manifest_sha256=manifest_sha256,
        size_bytes=manifest.size_bytes,
        val_loss=manifest.val_loss,
        world_size=manifest.world_size,
        tokens=manifest.tokens,
        verified_at=now,
    )
