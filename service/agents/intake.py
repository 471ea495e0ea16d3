"""What a heartbeat carries besides the node's state: metrics, log lines, reports of corrupt checkpoints."""

from __future__ import annotations

import math
import re

from sqlalchemy import case, delete, func, insert
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from service.db.models import Attempt, Job, LogLineRow, Metric
from training.protocol.messages import Heartbeat

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
LOSS = "loss/train"


def store_metrics(session: Session, job: Job, attempt: Attempt, heartbeat: Heartbeat) -> None:
    """One point a step. An attempt's further values of a step join the first ones; a later attempt's replace them."""
    values: dict[int, dict[str, float]] = {}
    instants = {point.step: point.at for point in heartbeat.metrics}
    for point in heartbeat.metrics:
        finite = {name: value for name, value in point.values.items() if math.isfinite(value)}
        values[point.step] = values.get(point.step, {}) | finite
    rows = [
        {"job_id": job.id, "step": step, "fence": attempt.fence, "at": instants[step], "values": values[step]}
        for step in values
    ]
    if not rows:
        return
    is_postgresql = session.get_bind().dialect.name == "postgresql"
    statement = (postgresql.insert if is_postgresql else sqlite.insert)(Metric).values(rows)
    new, old = statement.excluded, Metric.__table__.c
    joined = old["values"].op("||")(new["values"]) if is_postgresql else func.json_patch(old["values"], new["values"])
    session.execute(
        statement.on_conflict_do_update(
            index_elements=["job_id", "step"],
            set_={
                "fence": new["fence"],
                "at": new["at"],
                "values": case((old["fence"] == new["fence"], joined), else_=new["values"]),
            },
            where=old["fence"] <= attempt.fence,
        )
    )


def truncate_metrics(session: Session, job: Job, attempt: Attempt, resumed_from_step: int) -> None:
    """A resumed run goes on from its checkpoint: what an earlier attempt drew past it was lost, and is not drawn twice."""
    session.execute(
        delete(Metric).where(Metric.job_id == job.id, Metric.fence < attempt.fence, Metric.step > resumed_from_step)
    )


def store_logs(session: Session, job: Job, attempt: Attempt, heartbeat: Heartbeat) -> None:
    """Log lines as plain text; the agent has capped them, and control characters are dropped here whoever sent them."""
    rows = [
        {
            "job_id": job.id,
            "fence": attempt.fence,
            "node_rank": heartbeat.node_rank,
            "rank": line.rank,
            "stream": line.stream,
            "at": line.at,
            "text": _CONTROL.sub("", line.text),
        }
        for line in heartbeat.logs
    ]
    if rows:
        session.execute(insert(LogLineRow), rows)
