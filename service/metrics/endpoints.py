"""/v1/jobs/{job_id}/metrics: points in the order of steps, thinned on request."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field, FiniteFloat
from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session, aliased

from service.api.auth import Viewer
from service.api.dependencies import ReadDb
from service.api.routing import make_router
from service.db.models import Metric
from service.jobs.queries import find_job
from training.protocol.messages import MetricName

router = make_router("/v1/jobs/{job_id}/metrics", "metrics")
MAX_POINTS = 5000
Step = Annotated[int, Query(ge=0, le=2**62)]


class PointView(BaseModel):
    step: int
    fence: int
    at: datetime
    values: dict[str, FiniteFloat | None]


class MetricsView(BaseModel):
    points: list[PointView]
    total_points: int = Field(description="points that match, of which these are an even selection")


@router.get("")
def list_metrics(
    job_id: str,
    session: ReadDb,
    who: Viewer,
    names: Annotated[list[MetricName], Query(max_length=16, description="none: every metric")] = [],  # noqa: B006
    from_step: Step = 0,
    to_step: Step = 2**62,
    max_points: Annotated[int, Query(ge=2, le=MAX_POINTS)] = 1000,
) -> MetricsView:
    """The job's points that have one of the names, evenly thinned to at most `max_points`; the last is always there."""
    job = find_job(session, job_id, who.project_id)
    return load_points(session, job.id, names=names, from_step=from_step, to_step=to_step, max_points=max_points)


def load_points(
    session: Session, job_id: str, *, names: Sequence[str], from_step: int, to_step: int, max_points: int
) -> MetricsView:
    matches = [Metric.job_id == job_id, Metric.step >= from_step, Metric.step <= to_step]
    if names:
        matches.append(or_(*(Metric.values[name].as_string().is_not(None) for name in names)))
    total = session.scalar(select(func.count()).select_from(Metric).where(*matches)) or 0
    stride = max(1, -(-total // max_points))
    # Counted from the last point backwards, so that the newest is shown and the selection is even.
    position = func.row_number().over(order_by=Metric.step.desc()).label("position")
    numbered = select(Metric, position).where(*matches).subquery()
    point = aliased(Metric, numbered)
    query = select(point).where((numbered.c.position - 1) % stride == 0).order_by(point.step)
    return MetricsView(
        points=[_show(row, names) for row in session.scalars(query)],
        total_points=total,
    )


def _show(row: Metric, names: Sequence[str]) -> PointView:
    values = {name: row.values[name] for name in names if name in row.values} if names else row.values
    return PointView(step=row.step, fence=row.fence, at=row.at, values=values)
