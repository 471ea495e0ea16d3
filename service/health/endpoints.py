"""/livez, /readyz and /metrics: for machines, without a key; they show no tenant's data."""

from __future__ import annotations

import socket
from datetime import datetime
from typing import Literal
from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import generate_latest
from pydantic import BaseModel
from sqlalchemy import func, select, text
from sqlalchemy.exc import SQLAlchemyError

from service.api.dependencies import Ctx
from service.context import Context
from service.db.models import Job, Watch
from service.db.session import session_scope

BROKER_TIMEOUT_SECONDS = 0.25
SWEEP_WATCH = "sweep"
router = APIRouter(tags=["health"])


class LiveView(BaseModel):
    status: Literal["live"] = "live"


class ReadyView(BaseModel):
    """`broker` and `sweep_age_seconds` are advice: without them jobs wait, and requests are still served."""

    status: Literal["ready", "not_ready"]
    database: Literal["ok", "away"]
    broker: Literal["ok", "away"]
    sweep_age_seconds: float | None


@router.get("/livez")
async def show_live() -> LiveView:
    """Answers whenever the process does. No I/O."""
    return LiveView()


@router.get("/readyz", response_model=ReadyView, responses={503: {"model": ReadyView}})
def show_ready(context: Ctx) -> JSONResponse:
    """Whether requests can be served: the database answers."""
    now = context.clock()
    try:
        with session_scope(context.sessions, is_reader=True) as session:
            session.execute(text("SELECT 1"))
            swept_at = session.scalar(select(Watch.last_at).where(Watch.name == SWEEP_WATCH))
        is_ready = True
    except SQLAlchemyError:
        swept_at, is_ready = None, False
    view = ReadyView(
        status="ready" if is_ready else "not_ready",
        database="ok" if is_ready else "away",
        broker="ok" if _has_broker(context.settings.broker) else "away",
        sweep_age_seconds=_age(swept_at, now),
    )
    return JSONResponse(view.model_dump(), 200 if is_ready else 503)


@router.get("/metrics", response_class=PlainTextResponse)
def show_metrics(request: Request, context: Ctx) -> Response:
    """Prometheus text format. Jobs are counted by status, never named."""
    request.app.state.metrics.set_job_counts(_count_jobs(context))
    body = generate_latest(request.app.state.metrics.registry)
    return Response(body, media_type="text/plain; version=0.0.4; charset=utf-8")


def _count_jobs(context: Context) -> dict[str, int]:
    """Empty while the database is away: figures of the process are worth having without it."""
    try:
        with session_scope(context.sessions, is_reader=True) as session:
            return dict(session.execute(select(Job.status, func.count()).group_by(Job.status)).all())
    except SQLAlchemyError:
        return {}


def _age(at: datetime | None, now: datetime) -> float | None:
    return None if at is None else max(0.0, (now - at).total_seconds())


def _has_broker(url: str) -> bool:
    """Whether something listens there; what it says is the workers' matter."""
    parts = urlsplit(url)
    is_socket = "socket" in parts.scheme or parts.scheme == "unix"
    address = parts.path if is_socket else (parts.hostname or "127.0.0.1", parts.port or 6379)
    with socket.socket(socket.AF_UNIX if is_socket else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(BROKER_TIMEOUT_SECONDS)
        try:
            probe.connect(address)
        except OSError:
            return False
    return True
