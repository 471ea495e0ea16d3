"""A worker's hold on deliveries: a token and a term in the database's time, so that two workers never send one at once.

At most PER_ENDPOINT of an endpoint are held at a time: a slow receiver takes few of the threads, and no other's.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, func, or_, select, update
from sqlalchemy.orm import Session, aliased

from service.context import Context
from service.db.models import Event, WebhookDelivery, WebhookEndpoint
from service.db.session import database_now, run_in_transaction, session_scope
from service.domain.webhook_schedule import DeliveryState

PER_ENDPOINT = 2
CLAIM = timedelta(seconds=90)
"""Longer than a name server and a receiver may take together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimedDelivery:
    """All that one try needs, so that it holds no session."""

    id: str
    token: str
    tries: int
    endpoint_id: str
    url: str
    sealed_secret: bytes = field(repr=False)
    event_id: int
    event_type: str
    event_at: datetime
    project_id: str
    job_id: str | None
    data: dict[str, Any]


def claim_due(context: Context, limit: int) -> list[ClaimedDelivery]:
    """Take at most `limit` due deliveries, longest due first. Looks before it takes a write lock."""
    now = context.clock()
    with session_scope(context.sessions, is_reader=True) as session:
        if limit < 1 or not _pick(session, now, 1):
            return []
    return run_in_transaction(context.sessions, lambda session: _claim(session, now, limit))


def _claim(session: Session, now: datetime, limit: int) -> list[ClaimedDelivery]:
    instant = database_now(session)
    is_free = _is_free(WebhookDelivery, now, instant)
    picked = _pick(session, now, limit)
    locked = session.scalars(
        select(WebhookDelivery.id).where(WebhookDelivery.id.in_(picked), is_free).with_for_update(skip_locked=True)
    ).all()
    token = secrets.token_hex(16)
    session.execute(
        update(WebhookDelivery)
        .where(WebhookDelivery.id.in_(locked))
        .values(claim_token=token, claimed_until=instant + CLAIM)
        .execution_options(synchronize_session=False)
    )
    return _load(session, token) if locked else []


def _pick(session: Session, now: datetime, limit: int) -> list[str]:
    """Ids of due deliveries of enabled endpoints, few enough of each endpoint."""
    instant = database_now(session)
    held = aliased(WebhookDelivery)
    num_held = (
        select(func.count())
        .where(
            held.endpoint_id == WebhookDelivery.endpoint_id,
            held.state == DeliveryState.PENDING,
            held.claimed_until >= instant,
        )
        .scalar_subquery()
    )
    place = func.row_number().over(partition_by=WebhookDelivery.endpoint_id, order_by=_order()).label("place")
    ranked = (
        select(WebhookDelivery.id, WebhookDelivery.due_at, place, num_held.label("num_held"))
        .join(WebhookEndpoint, WebhookEndpoint.id == WebhookDelivery.endpoint_id)
        .where(WebhookEndpoint.disabled_at.is_(None), _is_free(WebhookDelivery, now, instant))
        .subquery()
    )
    few = select(ranked.c.id).where(ranked.c.place + ranked.c.num_held <= PER_ENDPOINT)
    return list(session.scalars(few.order_by(ranked.c.due_at, ranked.c.id).limit(limit)))


def _order() -> tuple[ColumnElement[Any], ...]:
    return WebhookDelivery.due_at.expression, WebhookDelivery.id.expression


def _is_free(delivery: type[WebhookDelivery], now: datetime, instant: datetime) -> ColumnElement[bool]:
    is_unclaimed = or_(delivery.claimed_until.is_(None), delivery.claimed_until < instant)
    return (delivery.state == DeliveryState.PENDING) & (delivery.due_at <= now) & is_unclaimed


def _load(session: Session, token: str) -> list[ClaimedDelivery]:
    rows = session.execute(
        select(WebhookDelivery, WebhookEndpoint, Event)
        .join(WebhookEndpoint, WebhookEndpoint.id == WebhookDelivery.endpoint_id)
        .join(Event, Event.id == WebhookDelivery.event_id)
        .where(WebhookDelivery.claim_token == token)
    )
    return [
        ClaimedDelivery(
            id=delivery.id,
            token=token,
            tries=delivery.tries,
            endpoint_id=endpoint.id,
            url=endpoint.url,
            sealed_secret=endpoint.sealed_secret,
            event_id=event.id,
            event_type=event.type,
            event_at=event.at,
            project_id=event.project_id,
            job_id=event.job_id,
            data=event.data,
        )
        for delivery, endpoint, event in rows
    ]
