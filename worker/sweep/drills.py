"""Drills: take a node away on purpose, as asked for through the API."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from service.context import Context
from service.db.models import Drill
from service.db.session import run_in_transaction
from service.ids import cluster_name
from worker.provision.protocol import Interruptible, Provisioner, ProvisionError


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedDrill:
    id: str
    cluster_name: str
    node_rank: int
    has_notice: bool


def act_drills(context: Context, provisioner: Provisioner) -> int:
    """Act on every drill that was asked for; how many. Each is taken before it is acted on, so none happens twice."""
    wanted = run_in_transaction(context.sessions, lambda session: _take(session, context.clock()))
    for drill in wanted:
        failure = _interrupt(provisioner, drill)
        if failure is not None:
            run_in_transaction(context.sessions, lambda session, d=drill, f=failure: _record(session, d.id, f))
    return len(wanted)


def _take(session: Session, now: datetime) -> tuple[WantedDrill, ...]:
    rows = session.scalars(select(Drill).where(Drill.acted_at.is_(None)).with_for_update(skip_locked=True)).all()
    for row in rows:
        row.acted_at = now
    return tuple(
        WantedDrill(
            id=row.id,
            cluster_name=cluster_name(row.job_id, row.fence),
            node_rank=row.node_rank,
            has_notice=row.has_notice,
        )
        for row in rows
    )


def _interrupt(provisioner: Provisioner, drill: WantedDrill) -> str | None:
    if not isinstance(provisioner, Interruptible):
        return "this provisioner cannot take a node away on purpose"
    try:
        provisioner.interrupt(drill.cluster_name, drill.node_rank, has_notice=drill.has_notice)
    except ProvisionError as error:
        return str(error)[:500]
    return None


def _record(session: Session, drill_id: str, failure: str) -> None:
    session.execute(update(Drill).where(Drill.id == drill_id).values(failure=failure))
