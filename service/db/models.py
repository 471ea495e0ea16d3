"""The tables. Money is in nano-dollars (`*_nano`), times are UTC, relations are loaded by explicit queries only."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from service.db.types import AutoId, Json, UtcDateTime

_NAMES = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map = {
        datetime: UtcDateTime,
        dict[str, Any]: Json,
        list[str]: Json,
        str: String(255),
        int: BigInteger,
    }


class Project(Base):
    __tablename__ = "projects"
    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    allows_unbudgeted_jobs: Mapped[bool] = mapped_column(default=False)
    created_at: Mapped[datetime]


class ApiKey(Base):
    """`gdw_<id>_<secret>`; only the secret's hash is kept."""

    __tablename__ = "api_keys"
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    name: Mapped[str]
    role: Mapped[str]
    secret_hash: Mapped[str]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]


class Job(Base):
    """`status`, `status_reason`, `end_reason` and `fence` are the reconciler's to write; the rest of the service writes wishes.

    Wishes are the two holds, `stop_reason`, `is_stop_now`, `retry_requested_at`. Whoever writes one also adds to `wakes`
    and brings `due_at` forward, so that a tick already under way cannot swallow it.
    """

    __tablename__ = "jobs"
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    name: Mapped[str]
    spec: Mapped[dict[str, Any]]
    sealed_secrets: Mapped[bytes | None] = mapped_column(LargeBinary)
    status: Mapped[str]
    status_reason: Mapped[str | None]
    end_reason: Mapped[str | None]
    has_user_hold: Mapped[bool] = mapped_column(default=False)
    has_budget_hold: Mapped[bool] = mapped_column(default=False)
    stop_reason: Mapped[str | None]
    is_stop_now: Mapped[bool] = mapped_column(default=False)
    retry_requested_at: Mapped[datetime | None]
    fence: Mapped[int] = mapped_column(default=0)
    num_nodes: Mapped[int]
    preemption_count: Mapped[int] = mapped_column(default=0)
    fault_count: Mapped[int] = mapped_column(default=0)
    faults_since_progress: Mapped[int] = mapped_column(default=0)
    user_error_count: Mapped[int] = mapped_column(default=0)
    launch_failure_count: Mapped[int] = mapped_column(default=0)
    not_before: Mapped[datetime | None]
    step: Mapped[int] = mapped_column(default=0)
    target_steps: Mapped[int | None]
    checkpoint_step: Mapped[int | None]
    error: Mapped[dict[str, Any] | None]
    due_at: Mapped[datetime | None] = mapped_column(index=True)
    wakes: Mapped[int] = mapped_column(default=0)
    claim_token: Mapped[str | None]
    claimed_until: Mapped[datetime | None]
    deadline_missed_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    __table_args__ = (
        Index("ix_jobs_page", "project_id", "created_at", "id"),
        Index("ix_jobs_status", "project_id", "status"),
    )


class Attempt(Base):
    """One launch of one cluster. It holds `reserved_nano` of every budget that applies until it is `gone`."""

    __tablename__ = "attempts"
    id: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    fence: Mapped[int]
    state: Mapped[str]
    cause: Mapped[str | None]
    cluster_name: Mapped[str] = mapped_column(unique=True)
    offer_id: Mapped[str] = mapped_column(index=True)
    num_nodes: Mapped[int]
    ceiling_hourly_nano: Mapped[int]
    hourly_nano: Mapped[int]
    """The quote at the launch, for display; accrual reads the price book."""
    on_demand_hourly_nano: Mapped[int]
    intended_at: Mapped[datetime]
    launched_at: Mapped[datetime | None]
    launch_tries: Mapped[int] = mapped_column(default=0)
    launch_failure: Mapped[str | None]
    launch_detail: Mapped[str | None] = mapped_column(String(2000))
    tried_at: Mapped[datetime | None]
    next_try_at: Mapped[datetime | None]
    up_at: Mapped[datetime | None]
    first_step_at: Mapped[datetime | None]
    resumed_from_step: Mapped[int | None]
    last_step: Mapped[int | None]
    notice_at: Mapped[datetime | None]
    lost_at: Mapped[datetime | None]
    draining_at: Mapped[datetime | None]
    terminating_at: Mapped[datetime | None]
    terminate_tries: Mapped[int] = mapped_column(default=0)
    is_unconfirmed_alarmed: Mapped[bool] = mapped_column(default=False)
    gone_at: Mapped[datetime | None]
    grant_until: Mapped[datetime]
    covered_until: Mapped[datetime]
    """grant_until + drain bound + teardown bound: the instant up to which money is held."""
    accrued_until: Mapped[datetime]
    reserved_nano: Mapped[int] = mapped_column(default=0)
    cost_nano: Mapped[int] = mapped_column(default=0)
    on_demand_cost_nano: Mapped[int] = mapped_column(default=0)
    is_checkpoint_wanted: Mapped[bool] = mapped_column(default=False)
    __table_args__ = (
        UniqueConstraint("job_id", "fence"),
        CheckConstraint("reserved_nano >= 0", name="reserved"),
        Index("ix_attempts_live", "job_id", postgresql_where=text("state <> 'gone'")),
        Index("ix_attempts_intended", "intended_at"),
    )


class Node(Base):
    """The last that was heard of one node of an attempt."""

    __tablename__ = "nodes"
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id"), primary_key=True)
    node_rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    last_seq: Mapped[int]
    last_heartbeat_at: Mapped[datetime]
    phase: Mapped[str]
    step: Mapped[int | None]
    notice: Mapped[dict[str, Any] | None]
    exit: Mapped[dict[str, Any] | None]


class Checkpoint(Base):
    """The register: what is here and not corrupt is what a job resumes from."""

    __tablename__ = "checkpoints"
    id: Mapped[int] = mapped_column(AutoId, primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    step: Mapped[int]
    fence: Mapped[int]
    manifest_sha256: Mapped[str]
    size_bytes: Mapped[int]
    val_loss: Mapped[float | None]
    world_size: Mapped[int]
    tokens: Mapped[int]
    verified_at: Mapped[datetime]
    registered_at: Mapped[datetime]
    corrupt_at: Mapped[datetime | None]
    corrupt_reason: Mapped[str | None] = mapped_column(String(500))
    deleted_at: Mapped[datetime | None]
    __table_args__ = (UniqueConstraint("job_id", "step", "fence"),)


class Event(Base):
    """The outbox. Ids rise in the order of commit (see `service.db.outbox`)."""

    __tablename__ = "events"
    id: Mapped[int] = mapped_column(AutoId, primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    job_id: Mapped[str | None]
    type: Mapped[str]
    at: Mapped[datetime]
    data: Mapped[dict[str, Any]]
    relayed_at: Mapped[datetime | None]
    __table_args__ = (
        Index("ix_events_job", "job_id", "id"),
        Index("ix_events_project", "project_id", "id"),
        Index("ix_events_unrelayed", "id", postgresql_where=text("relayed_at IS NULL")),
    )


class Budget(Base):
    """A cap for a project (`job_id` null) or for one job. spent + reserved <= cap on every admission."""

    __tablename__ = "budgets"
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    job_id: Mapped[str | None] = mapped_column(ForeignKey("jobs.id"), unique=True)
    cap_nano: Mapped[int]
    spent_nano: Mapped[int] = mapped_column(default=0)
    reserved_nano: Mapped[int] = mapped_column(default=0)
    generation: Mapped[int] = mapped_column(default=1)
    """Raised by a change of the cap, which re-arms the thresholds."""
    created_at: Mapped[datetime]
    __table_args__ = (
        CheckConstraint("cap_nano > 0", name="cap"),
        CheckConstraint("spent_nano >= 0", name="spent"),
        CheckConstraint("reserved_nano >= 0", name="reserved"),
        Index(
            "uq_budgets_project",
            "project_id",
            unique=True,
            postgresql_where=text("job_id IS NULL"),
            sqlite_where=text("job_id IS NULL"),
        ),
    )


class BudgetAlert(Base):
    """One row a crossing: the primary key is what makes each alert single."""

    __tablename__ = "budget_alerts"
    budget_id: Mapped[str] = mapped_column(ForeignKey("budgets.id"), primary_key=True)
    generation: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    threshold_percent: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    crossed_at: Mapped[datetime]


class LedgerEntry(Base):
    """Append-only; `key` makes each window count once. History is never repriced."""

    __tablename__ = "ledger_entries"
    id: Mapped[int] = mapped_column(AutoId, primary_key=True)
    key: Mapped[str] = mapped_column(unique=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    job_id: Mapped[str | None] = mapped_column(index=True)
    attempt_id: Mapped[str | None] = mapped_column(index=True)
    category: Mapped[str]
    window_start: Mapped[datetime]
    window_end: Mapped[datetime]
    hourly_nano: Mapped[int]
    num_nodes: Mapped[int]
    amount_nano: Mapped[int]
    created_at: Mapped[datetime]


class OfferRow(Base):
    """The price book's offers."""

    __tablename__ = "offers"
    id: Mapped[str] = mapped_column(primary_key=True)
    provider: Mapped[str]
    region: Mapped[str]
    zone: Mapped[str]
    instance_type: Mapped[str]
    market: Mapped[str]
    accelerators: Mapped[str | None]
    num_cpus: Mapped[int]
    memory_gib: Mapped[float]
    on_demand_hourly_nano: Mapped[int]
    seen_at: Mapped[datetime]
    unavailable_until: Mapped[datetime | None]
    unavailable_reason: Mapped[str | None]
    failure_count: Mapped[int] = mapped_column(default=0)


class QuoteRow(Base):
    """The price book's quotes; history is kept."""

    __tablename__ = "quotes"
    offer_id: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[datetime] = mapped_column(primary_key=True)
    hourly_nano: Mapped[int]
    source: Mapped[str]
    seen_at: Mapped[datetime]
    """When the provider last confirmed this price; a quote not confirmed for long is stale."""


class Metric(Base):
    """One point a step. A resumed attempt truncates what a lower fence drew past the checkpoint."""

    __tablename__ = "metrics"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    fence: Mapped[int]
    at: Mapped[datetime]
    values: Mapped[dict[str, Any]]


class LogLineRow(Base):
    __tablename__ = "log_lines"
    id: Mapped[int] = mapped_column(AutoId, primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    fence: Mapped[int]
    node_rank: Mapped[int]
    rank: Mapped[int]
    stream: Mapped[str]
    at: Mapped[datetime]
    text: Mapped[str] = mapped_column(String(2000))
    __table_args__ = (Index("ix_log_lines_job", "job_id", "id"),)


class IdempotentRequest(Base):
    """A create's first answer, kept for its repeats. The fingerprint tells another body from a repeat."""

    __tablename__ = "idempotent_requests"
    project_id: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    fingerprint: Mapped[str]
    status_code: Mapped[int]
    body: Mapped[dict[str, Any]]
    created_at: Mapped[datetime] = mapped_column(index=True)


class WebhookEndpoint(Base):
    __tablename__ = "webhook_endpoints"
    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    url: Mapped[str] = mapped_column(String(2048))
    sealed_secret: Mapped[bytes] = mapped_column(LargeBinary)
    event_types: Mapped[list[str]]
    disabled_at: Mapped[datetime | None]
    disabled_reason: Mapped[str | None]
    created_at: Mapped[datetime]


class WebhookDelivery(Base):
    __tablename__ = "webhook_deliveries"
    id: Mapped[str] = mapped_column(primary_key=True)
    endpoint_id: Mapped[str] = mapped_column(ForeignKey("webhook_endpoints.id"))
    event_id: Mapped[int] = mapped_column(ForeignKey("events.id"))
    state: Mapped[str]
    tries: Mapped[int] = mapped_column(default=0)
    due_at: Mapped[datetime | None] = mapped_column(index=True)
    claim_token: Mapped[str | None]
    claimed_until: Mapped[datetime | None]
    response_status: Mapped[int | None]
    response_excerpt: Mapped[str | None] = mapped_column(String(2000))
    error: Mapped[str | None] = mapped_column(String(500))
    latency_ms: Mapped[int | None]
    created_at: Mapped[datetime]
    delivered_at: Mapped[datetime | None]
    __table_args__ = (UniqueConstraint("endpoint_id", "event_id"),)


class Watch(Base):
    """A periodic duty's own record. After a gap, silence counts from `returned_at` only."""

    __tablename__ = "watches"
    name: Mapped[str] = mapped_column(primary_key=True)
    last_at: Mapped[datetime]
    returned_at: Mapped[datetime]


class Drill(Base):
    """A preemption on purpose. What it took is read from the attempts."""

    __tablename__ = "drills"
    id: Mapped[str] = mapped_column(primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    fence: Mapped[int]
    node_rank: Mapped[int]
    has_notice: Mapped[bool]
    requested_at: Mapped[datetime]
    acted_at: Mapped[datetime | None]
    failure: Mapped[str | None] = mapped_column(String(500))
