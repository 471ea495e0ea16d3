"""What happened to a job's attempts: losses, recoveries and drills, all read from the attempts' own times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from service.api.money import to_usd
from service.db.models import Attempt, Drill
from service.domain.states import AttemptCause, AttemptState
from service.jobs.schemas import AttemptView, DrillView, PreemptionView

LOSS_CAUSES = frozenset({AttemptCause.PREEMPTED.value, AttemptCause.SILENT.value, AttemptCause.INFRASTRUCTURE.value})


def load_attempts(session: Session, job_id: str) -> Sequence[Attempt]:
    """In the order of their fences."""
    return session.scalars(select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.fence)).all()


def show_attempt(attempt: Attempt, now: datetime) -> AttemptView:
    started_at = attempt.launched_at or attempt.intended_at
    shown = {name: getattr(attempt, name) for name in AttemptView.model_fields if hasattr(attempt, name)}
    return AttemptView.model_validate(
        {
            **shown,
            "state": AttemptState(attempt.state),
            "hourly_usd": to_usd(attempt.hourly_nano),
            "ceiling_hourly_usd": to_usd(attempt.ceiling_hourly_nano),
            "on_demand_hourly_usd": to_usd(attempt.on_demand_hourly_nano),
            "seconds": max(0.0, ((attempt.gone_at or now) - started_at).total_seconds()),
            "reserved_usd": to_usd(attempt.reserved_nano),
            "cost_usd": to_usd(attempt.cost_nano),
            "on_demand_cost_usd": to_usd(attempt.on_demand_cost_nano),
        }
    )


def list_preemptions(attempts: Sequence[Attempt]) -> list[PreemptionView]:
    """Every loss of a running attempt, oldest first."""
    return [
        _show_preemption(attempt, _find_next(attempts, attempt.fence))
        for attempt in attempts
        if attempt.cause in LOSS_CAUSES
    ]


def report_drill(drill: Drill, attempts: Sequence[Attempt]) -> DrillView:
    """What the drill took so far."""
    hit = next((attempt for attempt in attempts if attempt.fence == drill.fence), None)
    after = _find_next(attempts, drill.fence)
    known_at = (hit.notice_at or hit.lost_at) if hit and drill.acted_at else None
    first_step_at = after.first_step_at if after else None
    return DrillView(
        id=drill.id,
        job_id=drill.job_id,
        fence=drill.fence,
        node_rank=drill.node_rank,
        notice=drill.has_notice,
        state="failed"
        if drill.failure
        else "recovered"
        if first_step_at
        else "acted"
        if drill.acted_at
        else "requested",
        requested_at=drill.requested_at,
        acted_at=drill.acted_at,
        failure=drill.failure,
        detection_seconds=_seconds(drill.acted_at, known_at),
        relaunch_seconds=_seconds(known_at, after.up_at if after else None),
        first_step_seconds=_seconds(drill.acted_at, first_step_at),
        at_step=_step_reached(hit, after) if hit and known_at else None,
        resumed_from_step=after.resumed_from_step if after else None,
        steps_lost=_steps_lost(hit, after),
    )


def _show_preemption(attempt: Attempt, after: Attempt | None) -> PreemptionView:
    at = attempt.notice_at or attempt.lost_at
    return PreemptionView(
        fence=attempt.fence,
        cause=attempt.cause or "",
        offer_id=attempt.offer_id,
        notice=attempt.notice_at is not None,
        at=at,
        at_step=_step_reached(attempt, after),
        resumed_fence=after.fence if after else None,
        resumed_from_step=after.resumed_from_step if after else None,
        steps_lost=_steps_lost(attempt, after),
        seconds_to_first_step=_seconds(at, after.first_step_at if after else None),
    )


def _find_next(attempts: Sequence[Attempt], fence: int) -> Attempt | None:
    """The attempt that went on: the first later one that knows where it resumed; launches that came to nothing do not count."""
    later = [attempt for attempt in attempts if attempt.fence > fence]
    return next((attempt for attempt in later if attempt.resumed_from_step is not None), None)


def _steps_lost(before: Attempt | None, after: Attempt | None) -> int | None:
    if before is None or after is None or after.resumed_from_step is None:
        return None
    reached = before.last_step if before.last_step is not None else before.resumed_from_step
    return max(0, (reached or 0) - after.resumed_from_step)


def _step_reached(before: Attempt, after: Attempt | None) -> int | None:
    """The last step heard of; a checkpoint that was resumed from proves one that no heartbeat told of any more."""
    told = [before.last_step, after.resumed_from_step if after else None]
    return max((step for step in told if step is not None), default=None)


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else max(0.0, (end - start).total_seconds())
