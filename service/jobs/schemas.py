"""Jobs as the API shows and takes them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from service.api.money import UsdText
from service.domain.states import AttemptState, EndReason, Hold, JobStatus
from training.protocol.base import Value

HourlyUsd = Annotated[UsdText, Field(description="USD per node and hour")]


class JobError(BaseModel):
    """What went wrong, and what to do about it."""

    code: str | None = None
    message: str
    remedy: str | None = None
    rank: int | None = None
    exit_code: int | None = None
    log_tail: list[str] = Field(default_factory=list)


class LiveAttempt(BaseModel):
    """The attempt that is not gone yet."""

    id: str
    fence: int
    state: AttemptState
    offer_id: str
    hourly_usd: HourlyUsd
    num_nodes: int


class JobSummary(BaseModel):
    """A job on a list."""

    id: str
    project_id: str
    name: str
    labels: dict[str, str]
    status: JobStatus
    status_reason: str | None
    end_reason: EndReason | None
    holds: list[Hold]
    stop_requested: EndReason | None = Field(description="the end that was asked for and is under way")
    step: int
    target_steps: int | None
    checkpoint_step: int | None = Field(description="of the latest registered checkpoint")
    loss: float | None = Field(description="the latest training loss")
    tokens_per_second: float | None
    attempt: LiveAttempt | None
    num_nodes: int
    attempt_count: int
    preemption_count: int
    fault_count: int
    checkpoint_count: int
    spent_usd: UsdText = Field(description="what the job's attempts have cost so far")
    on_demand_cost_usd: UsdText = Field(description="what the same hours would have cost on demand")
    reserved_usd: UsdText = Field(description="set aside for its live attempts")
    budget_id: str | None
    budget_usd: UsdText | None = Field(description="the cap of the job's own budget")
    deadline: datetime | None
    is_deadline_missed: bool
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class JobView(JobSummary):
    """A job in full. Secrets are named and never shown."""

    spec: dict[str, Any]
    secret_names: list[str]
    fence: int
    error: JobError | None


class CancelRequest(Value):
    now: bool = Field(default=False, description="skip the drain: no last checkpoint")


class RetryRequest(Value):
    """What to change for the retry: a JSON merge patch (RFC 7396) of the spec."""

    spec: dict[str, Any] = Field(default_factory=dict)


class DryRunOffer(BaseModel):
    id: str
    hourly_usd: HourlyUsd
    is_available: bool = Field(description="not known to be out of capacity now")


class DryRunView(BaseModel):
    """What a submission would meet. Nothing was written."""

    is_admissible: bool
    reasons: list[str] = Field(description="why it would not start now")
    offer_count: int
    offers: list[DryRunOffer] = Field(description="the cheapest that would do")
    cheapest_hourly_usd: HourlyUsd | None
    admission_usd: UsdText | None = Field(description="what the first admission sets aside at the cheapest offer")
    available_usd: UsdText | None = Field(description="over all budgets that would apply; null: none does")


class AttemptView(BaseModel):
    id: str
    fence: int
    state: AttemptState
    cause: str | None
    cluster_name: str
    offer_id: str
    num_nodes: int
    hourly_usd: HourlyUsd
    ceiling_hourly_usd: HourlyUsd
    on_demand_hourly_usd: HourlyUsd
    launch_failure: str | None
    launch_detail: str | None
    intended_at: datetime
    launched_at: datetime | None
    up_at: datetime | None
    first_step_at: datetime | None
    notice_at: datetime | None
    lost_at: datetime | None
    draining_at: datetime | None
    terminating_at: datetime | None
    gone_at: datetime | None
    grant_until: datetime
    resumed_from_step: int | None
    last_step: int | None
    seconds: float = Field(description="from the launch until it was gone, or now")
    reserved_usd: UsdText
    cost_usd: UsdText
    on_demand_cost_usd: UsdText


class PreemptionView(BaseModel):
    """A loss of an attempt and how the job came back. Null while it is not known yet."""

    fence: int
    cause: str
    offer_id: str
    notice: bool
    at: datetime | None
    at_step: int | None
    resumed_fence: int | None
    resumed_from_step: int | None
    steps_lost: int | None
    seconds_to_first_step: float | None


class DrillRequest(Value):
    """A preemption on purpose."""

    notice: bool = Field(default=True, description="with an interruption notice before it")
    node_rank: int = Field(default=0, ge=0, le=1_000_000)


class DrillView(BaseModel):
    """What a drill took. Null while it is not known yet."""

    id: str
    job_id: str
    fence: int
    node_rank: int
    notice: bool
    state: Literal["requested", "acted", "recovered", "failed"]
    requested_at: datetime
    acted_at: datetime | None
    failure: str | None
    detection_seconds: float | None = Field(description="from the act until the service knew")
    relaunch_seconds: float | None = Field(description="from then until the next attempt was up")
    first_step_seconds: float | None = Field(description="from the act until the next attempt's first new step")
    at_step: int | None
    resumed_from_step: int | None
    steps_lost: int | None
