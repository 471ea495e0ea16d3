"""Load: claim the job and read, in one transaction, all that a decision needs from the database, as frozen values."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.budgets.service import view_money
from service.db.claims import Claim, claim_job
from service.db.models import Attempt, Checkpoint, Job, Node
from service.db.watches import find_returned_at
from service.domain.offers import Market
from service.domain.placement import rank_candidates
from service.domain.price_book import PricedOffer
from service.domain.snapshot import AttemptView, Candidate, ExitKind, JobView, LaunchFailure, MoneyView, NodeView
from service.domain.states import AttemptCause, AttemptState, EndReason, Hold, JobStatus, StatusReason
from service.jobs.wanted import first_grant, to_wanted
from service.prices.service import list_priced_offers
from service.settings import Settings
from training.protocol.job_spec import JobSpec

_LAUNCH_WINDOW = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """What the tick knows before it looks outside. `attempts` have no observation yet."""

    claim: Claim
    project_id: str
    spec: JobSpec
    sealed_secrets: bytes | None = field(repr=False)
    job: JobView
    attempts: tuple[AttemptView, ...]
    attempt_ids: Mapping[int, str]
    candidates: tuple[Candidate, ...]
    reason_for_none: StatusReason
    offers: Mapping[str, PricedOffer]
    money: MoneyView
    launch_slots: int
    service_returned_at: datetime
    known_checkpoints: frozenset[tuple[int, int]]

    @property
    def job_id(self) -> str:
        return self.claim.job_id


def load_job(session: Session, job_id: str, *, settings: Settings, now: datetime) -> Loaded | None:
    """Claim a due job and read it; None when it is not due or another worker holds it."""
    claim = claim_job(session, job_id, now=now)
    if claim is None:
        return None
    job = session.get_one(Job, job_id, populate_existing=True)
    spec = JobSpec.model_validate(job.spec)
    rows = _live_attempts(session, job_id)
    offers = {priced.offer.id: priced for priced in list_priced_offers(session, now, quote_stale=settings.quote_stale)}
    candidates, reason = rank_candidates(tuple(offers.values()), to_wanted(spec), now=now)
    return Loaded(
        claim=claim,
        project_id=job.project_id,
        spec=spec,
        sealed_secrets=job.sealed_secrets,
        job=_view_job(job, spec, settings),
        attempts=tuple(_view_attempt(session, row, offers) for row in rows),
        attempt_ids={row.fence: row.id for row in rows},
        candidates=candidates,
        reason_for_none=reason,
        offers=offers,
        money=view_money(session, job.project_id, job_id),
        launch_slots=settings.launches_per_minute - _count_launches(session, now),
        service_returned_at=find_returned_at(session, now=now),
        known_checkpoints=_known_checkpoints(session, job_id),
    )


def _live_attempts(session: Session, job_id: str) -> Sequence[Attempt]:
    statement = select(Attempt).where(Attempt.job_id == job_id, Attempt.state != AttemptState.GONE)
    return session.scalars(statement.order_by(Attempt.fence).execution_options(populate_existing=True)).all()


def _count_launches(session: Session, now: datetime) -> int:
    recent = select(func.count()).select_from(Attempt).where(Attempt.intended_at > now - _LAUNCH_WINDOW)
    return session.scalar(recent) or 0


def _known_checkpoints(session: Session, job_id: str) -> frozenset[tuple[int, int]]:
    rows = session.execute(select(Checkpoint.step, Checkpoint.fence).where(Checkpoint.job_id == job_id))
    return frozenset((step, fence) for step, fence in rows)


def _view_job(job: Job, spec: JobSpec, settings: Settings) -> JobView:
    holds = ((Hold.USER, job.has_user_hold), (Hold.BUDGET, job.has_budget_hold))
    return JobView(
        status=JobStatus(job.status),
        reason=StatusReason(job.status_reason) if job.status_reason else None,
        end_reason=EndReason(job.end_reason) if job.end_reason else None,
        holds=frozenset(hold for hold, is_held in holds if is_held),
        stop=EndReason(job.stop_reason) if job.stop_reason else None,
        is_stop_now=job.is_stop_now,
        is_retry=job.retry_requested_at is not None,
        num_nodes=job.num_nodes,
        fence=job.fence,
        faults_since_progress=job.faults_since_progress,
        max_faults=spec.limits.max_faults,
        not_before=job.not_before,
        launch_failure_count=job.launch_failure_count,
        first_grant=first_grant(spec, settings.terms),
        deadline=spec.deadline,
        is_deadline_missed=job.deadline_missed_at is not None,
        stops_on_deadline=spec.on_deadline == "stop",
        jitter=zlib.crc32(job.id.encode()) / 2**32,
    )


def _view_attempt(session: Session, row: Attempt, offers: Mapping[str, PricedOffer]) -> AttemptView:
    nodes = session.scalars(select(Node).where(Node.attempt_id == row.id).order_by(Node.node_rank))
    priced = offers.get(row.offer_id)
    price = priced.hourly_nano if priced else None
    return AttemptView(
        fence=row.fence,
        state=AttemptState(row.state),
        cause=AttemptCause(row.cause) if row.cause else None,
        offer_id=row.offer_id,
        is_spot=row.offer_id.endswith(f"/{Market.SPOT}"),
        num_nodes=row.num_nodes,
        intended_at=row.intended_at,
        launched_at=row.launched_at,
        tried_at=row.tried_at,
        next_try_at=row.next_try_at,
        launch_tries=row.launch_tries,
        launch_failure=LaunchFailure(row.launch_failure) if row.launch_failure else None,
        up_at=row.up_at,
        has_run=row.first_step_at is not None,
        draining_at=row.draining_at,
        terminating_at=row.terminating_at,
        is_alarmed=row.is_unconfirmed_alarmed,
        grant_until=row.grant_until,
        nodes=tuple(_view_node(node) for node in nodes.all()),
        observation=None,
        is_above_ceiling=price is not None and price > row.ceiling_hourly_nano,
    )


def _view_node(node: Node) -> NodeView:
    has_notice = node.notice is not None and node.notice.get("kind") == "preemption"
    return NodeView(
        node_rank=node.node_rank,
        heard_at=node.last_heartbeat_at,
        has_notice=has_notice,
        exit_kind=ExitKind(node.exit["kind"]) if node.exit else None,
    )
