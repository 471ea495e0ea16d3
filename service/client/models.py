"""The API's answers, as far as this client reads them. Fields it does not know are kept, so that `--json` shows them all."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")
TERMINAL = frozenset({"succeeded", "failed", "cancelled"})


class Answer(BaseModel):
    """Frozen, and open to fields that a newer service adds."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Page(Answer, Generic[T]):
    items: tuple[T, ...]
    next_cursor: str | None = None


class Me(Answer):
    key_id: str
    project_id: str
    project_name: str
    role: str


class Project(Answer):
    id: str
    name: str
    allows_unbudgeted_jobs: bool
    created_at: datetime


class Key(Answer):
    id: str
    name: str
    role: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None


class NewKey(Key):
    secret: str = Field(repr=False)


class NewProject(Project):
    key: NewKey


class LiveAttempt(Answer):
    fence: int
    state: str
    offer_id: str
    hourly_usd: Decimal
    num_nodes: int


class JobError(Answer):
    code: str | None = None
    message: str
    remedy: str | None = None
    rank: int | None = None
    exit_code: int | None = None
    log_tail: tuple[str, ...] = ()


class Job(Answer):
    id: str
    name: str
    status: str
    status_reason: str | None = None
    end_reason: str | None = None
    holds: tuple[str, ...] = ()
    stop_requested: str | None = None
    step: int = 0
    target_steps: int | None = None
    checkpoint_step: int | None = None
    loss: float | None = None
    tokens_per_second: float | None = None
    attempt: LiveAttempt | None = None
    num_nodes: int = 1
    preemption_count: int = 0
    fault_count: int = 0
    checkpoint_count: int = 0
    spent_usd: Decimal = Decimal(0)
    on_demand_cost_usd: Decimal = Decimal(0)
    reserved_usd: Decimal = Decimal(0)
    budget_id: str | None = None
    budget_usd: Decimal | None = None
    deadline: datetime | None = None
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: JobError | None = None

    @property
    def is_over(self) -> bool:
        return self.status in TERMINAL


class DryRunOffer(Answer):
    id: str
    hourly_usd: Decimal | None = None
    is_available: bool = True


class DryRun(Answer):
    is_admissible: bool
    reasons: tuple[str, ...] = ()
    offer_count: int = 0
    offers: tuple[DryRunOffer, ...] = ()
    cheapest_hourly_usd: Decimal | None = None
    admission_usd: Decimal | None = None
    available_usd: Decimal | None = None


class Attempt(Answer):
    fence: int
    state: str
    cause: str | None = None
    offer_id: str
    num_nodes: int
    hourly_usd: Decimal
    seconds: float
    cost_usd: Decimal
    on_demand_cost_usd: Decimal
    first_step_at: datetime | None = None
    gone_at: datetime | None = None
    resumed_from_step: int | None = None
    last_step: int | None = None


class Preemption(Answer):
    fence: int
    cause: str
    offer_id: str
    notice: bool
    at: datetime | None = None
    at_step: int | None = None
    resumed_from_step: int | None = None
    steps_lost: int | None = None
    seconds_to_first_step: float | None = None


class Drill(Answer):
    id: str
    state: str
    notice: bool
    failure: str | None = None
    detection_seconds: float | None = None
    relaunch_seconds: float | None = None
    first_step_seconds: float | None = None
    at_step: int | None = None
    resumed_from_step: int | None = None
    steps_lost: int | None = None


class Checkpoint(Answer):
    step: int
    fence: int
    size_bytes: int
    val_loss: float | None = None
    verified: bool
    verified_at: datetime | None = None
    registered_at: datetime
    corrupt_at: datetime | None = None
    deleted_at: datetime | None = None


class Event(Answer):
    id: int
    type: str
    at: datetime
    job_id: str | None = None
    data: dict[str, Any] = {}


class LogLine(Answer):
    id: int
    at: datetime
    fence: int
    rank: int
    stream: str
    text: str


class Output(Answer):
    path: str
    size_bytes: int


class MetricPoint(Answer):
    step: int
    values: dict[str, float | None]


class Metrics(Answer):
    points: tuple[MetricPoint, ...]
    total_points: int


class Budget(Answer):
    id: str
    job_id: str | None = None
    cap_usd: Decimal
    spent_usd: Decimal
    reserved_usd: Decimal
    remaining_usd: Decimal
    thresholds_crossed: tuple[int, ...] = ()


class Offer(Answer):
    id: str
    provider: str
    region: str
    zone: str
    instance_type: str
    market: str
    accelerators: str | None = None
    hourly_usd: Decimal | None = None
    on_demand_hourly_usd: Decimal | None = None
    unavailable_until: datetime | None = None
    unavailable_reason: str | None = None
    preemptions_24h: int = 0


class Webhook(Answer):
    id: str
    url: str
    event_types: tuple[str, ...]
    is_enabled: bool
    disabled_reason: str | None = None
    created_at: datetime


class NewWebhook(Webhook):
    secret: str = Field(repr=False)


class Delivery(Answer):
    id: str
    event_id: int
    event_type: str
    state: str
    tries: int
    due_at: datetime | None = None
    response_status: int | None = None
    error: str | None = None
    latency_ms: int | None = None
    created_at: datetime


class Uploaded(Answer):
    digest: str
