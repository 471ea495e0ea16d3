"""The orphan sweep: every cluster with our label maps to a live intent, or is reaped and paid for in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

import structlog
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.budgets import service as budgets
from service.context import Context
from service.db.models import Attempt, Job, LedgerEntry
from service.db.outbox import emit
from service.db.session import run_in_transaction, session_scope
from service.domain.money import accrued_nano, from_nano
from service.domain.observations import ClusterSummary
from service.domain.price_book import PriceUnknown
from service.domain.states import AttemptState
from service.prices.service import split_by_price
from worker.provision.protocol import ProviderUnavailable, Provisioner

log = structlog.get_logger()

CATEGORY = "orphan"


def sweep_orphans(context: Context, provisioner: Provisioner) -> int:
    """Reap what no live intent owns; how many clusters were. A launch in progress always has its intent committed first,
    so listing the clusters before reading the intents can never mistake one for an orphan.
    """
    try:
        clusters = provisioner.list_clusters()
    except ProviderUnavailable:
        return 0
    with session_scope(context.sessions, is_reader=True) as session:
        orphans = _find_orphans(session, clusters)
    return sum(_reap(context, provisioner, orphan) for orphan in orphans)


def _find_orphans(session: Session, clusters: Sequence[ClusterSummary]) -> list[ClusterSummary]:
    names = [cluster.cluster_name for cluster in clusters]
    is_live = Attempt.state != AttemptState.GONE
    live = set(session.scalars(select(Attempt.cluster_name).where(Attempt.cluster_name.in_(names), is_live)))
    return [cluster for cluster in clusters if cluster.cluster_name not in live]


def _reap(context: Context, provisioner: Provisioner, orphan: ClusterSummary) -> bool:
    """Count first, then end: whatever dies in between, or does not end, is not billed in silence."""
    run_in_transaction(context.sessions, partial(_count, orphan=orphan, now=context.clock()))
    try:
        is_gone = provisioner.terminate(orphan.cluster_name)
    except ProviderUnavailable:
        return False
    if not is_gone:
        return False
    log.warning("orphan_reaped", cluster=orphan.cluster_name, job_id=orphan.job_id, fence=orphan.fence)
    run_in_transaction(context.sessions, partial(_close, orphan=orphan, now=context.clock()))
    return True


def _close(session: Session, orphan: ClusterSummary, now: datetime) -> None:
    """The last window, and the word of it."""
    job = _count(session, orphan, now)
    if job is None:
        return
    of_cluster = LedgerEntry.key.startswith(_key_prefix(orphan), autoescape=True)
    cost_nano = session.scalar(select(func.sum(LedgerEntry.amount_nano)).where(of_cluster)) or 0
    emit(
        session,
        project_id=job.project_id,
        job_id=job.id,
        kind="orphan.reaped",
        at=now,
        cluster_name=orphan.cluster_name,
        fence=orphan.fence,
        cost_usd=str(from_nano(int(cost_nano))),
    )


def _count(session: Session, orphan: ClusterSummary, now: datetime) -> Job | None:
    """Its cost up to now counts against its job's budgets, each window once; a cluster of a job that nobody knows is in
    the log alone. The lock on the job keeps two sweeps apart."""
    job = session.scalar(select(Job).where(Job.id == orphan.job_id).with_for_update())
    if job is None:
        return None
    attempt = session.scalar(select(Attempt).where(Attempt.cluster_name == orphan.cluster_name))
    start = _find_start(session, orphan, attempt)
    if now <= start:
        return job
    amount, hourly = _price(session, orphan, start, now)
    session.add(
        LedgerEntry(
            key=f"{_key_prefix(orphan)}{start.isoformat()}",
            project_id=job.project_id,
            job_id=job.id,
            attempt_id=attempt.id if attempt else None,
            category=CATEGORY,
            window_start=start,
            window_end=now,
            hourly_nano=hourly,
            num_nodes=orphan.num_nodes,
            amount_nano=amount,
            created_at=now,
        )
    )
    session.flush()
    budgets.settle(session, job.project_id, job.id, spent_nano=amount, released_nano=0, now=now)
    return job


def _key_prefix(orphan: ClusterSummary) -> str:
    return f"{CATEGORY}:{orphan.cluster_name}:{orphan.created_at.isoformat()}:"


def _find_start(session: Session, orphan: ClusterSummary, attempt: Attempt | None) -> datetime:
    """Where the last window ended; for the first, when the cluster was made, or when its attempt stopped counting."""
    of_cluster = LedgerEntry.key.startswith(_key_prefix(orphan), autoescape=True)
    counted = session.scalar(select(func.max(LedgerEntry.window_end)).where(of_cluster))
    if counted is not None:
        return counted
    return max(orphan.created_at, attempt.accrued_until) if attempt else orphan.created_at


def _price(session: Session, orphan: ClusterSummary, start: datetime, end: datetime) -> tuple[int, int]:
    try:
        windows = split_by_price(session, orphan.offer_id, start, end)
    except PriceUnknown:
        return 0, 0
    amount = sum(accrued_nano(w.hourly_nano, w.end - w.start, orphan.num_nodes) for w in windows)
    return amount, windows[-1].hourly_nano if windows else 0
