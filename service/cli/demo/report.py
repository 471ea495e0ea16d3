"""What came of the demonstration, every figure from the API's records."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from service.cli.errors import CliError
from service.client.api import Godwit
from service.client.errors import ApiError
from service.client.models import Checkpoint, Job, MetricPoint

LOSS, VALIDATION_LOSS, TOKENS = "loss/train", "loss/validation", "data/tokens"
SAMPLE = "sample.txt"
MAX_POINTS = 5000


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class JobPart(_Part):
    id: str
    status: str
    end_reason: str | None


class PreemptionPart(_Part):
    notice: bool
    at_step: int | None
    resumed_from_step: int | None
    steps_lost: int | None
    seconds_to_first_step: float | None


class CheckpointPart(_Part):
    step: int
    fence: int
    size_bytes: int
    verified: bool


class AttemptPart(_Part):
    fence: int
    offer: str
    hourly_usd: float
    seconds: float


class Report(_Part):
    """The shape of `--report`. Null is what no record tells."""

    job: JobPart
    steps: int
    tokens: int | None
    first_loss: float | None
    final_loss: float | None
    val_loss: float | None
    preemptions: tuple[PreemptionPart, ...]
    checkpoints: tuple[CheckpointPart, ...]
    attempts: tuple[AttemptPart, ...]
    cost_usd: float
    on_demand_cost_usd: float
    budget_usd: float | None
    wall_seconds: float | None
    sample: str | None


def collect_report(client: Godwit, job_id: str) -> Report:
    job = client.job(job_id)
    points = client.metrics(job_id, [LOSS, VALIDATION_LOSS, TOKENS], max_points=MAX_POINTS)
    losses, tokens = _series(points, LOSS), _series(points, TOKENS)
    validation_losses = _series(points, VALIDATION_LOSS)
    kept = client.checkpoints(job_id, with_deleted=True)
    return Report(
        job=JobPart(id=job.id, status=job.status, end_reason=job.end_reason),
        steps=job.step,
        tokens=int(tokens[-1]) if tokens else None,
        first_loss=losses[0] if losses else None,
        final_loss=losses[-1] if losses else None,
        val_loss=_val_loss(kept, validation_losses),
        preemptions=_preemptions(client, job_id),
        checkpoints=_checkpoints(kept),
        attempts=_attempts(client, job_id),
        cost_usd=float(job.spent_usd),
        on_demand_cost_usd=float(job.on_demand_cost_usd),
        budget_usd=_float(job.budget_usd),
        wall_seconds=_wall_seconds(job),
        sample=_sample(client, job_id),
    )


def write_report(report: Report, path: Path) -> None:
    """Appears whole or not at all. Errors: CliError."""
    try:
        draft = path.with_name(f".{path.name}.part")
        draft.write_text(report.model_dump_json(indent=2) + "\n")
        draft.replace(path)
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}", remedy="choose another by --report") from error


def _series(points: list[MetricPoint], name: str) -> list[float]:
    return [value for point in points if (value := point.values.get(name)) is not None]


def _preemptions(client: Godwit, job_id: str) -> tuple[PreemptionPart, ...]:
    return tuple(
        PreemptionPart(
            notice=item.notice,
            at_step=item.at_step,
            resumed_from_step=item.resumed_from_step,
            steps_lost=item.steps_lost,
            seconds_to_first_step=item.seconds_to_first_step,
        )
        for item in client.preemptions(job_id)
    )


def _val_loss(kept: list[Checkpoint], series: list[float]) -> float | None:
    """The newest checkpoint's; without one, the latest that was drawn."""
    if kept and kept[-1].val_loss is not None:
        return kept[-1].val_loss
    return series[-1] if series else None


def _checkpoints(kept: list[Checkpoint]) -> tuple[CheckpointPart, ...]:
    """Those that retention let go, too: they were registered and verified."""
    return tuple(
        CheckpointPart(step=item.step, fence=item.fence, size_bytes=item.size_bytes, verified=item.verified)
        for item in kept
    )


def _attempts(client: Godwit, job_id: str) -> tuple[AttemptPart, ...]:
    return tuple(
        AttemptPart(
            fence=item.fence, offer=item.offer_id, hourly_usd=float(item.hourly_usd), seconds=round(item.seconds, 3)
        )
        for item in client.attempts(job_id)
    )


def _wall_seconds(job: Job) -> float | None:
    return round((job.ended_at - job.created_at).total_seconds(), 3) if job.ended_at else None


def _float(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)


def _sample(client: Godwit, job_id: str) -> str | None:
    try:
        return client.output_text(job_id, SAMPLE)
    except ApiError as error:
        if error.status == 404:
            return None
        raise
