"""Fan events out: one delivery for every enabled endpoint that takes the event, in one transaction with `relayed_at`.

A delivery is unique by endpoint and event, so that relays at once, or again after a crash, make none twice.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from service.context import Context
from service.db.models import Event, WebhookDelivery, WebhookEndpoint
from service.db.session import run_in_transaction, session_scope
from service.domain.webhook_schedule import DELAYS, DeliveryState, is_subscribed
from service.ids import new_id
from service.webhooks.service import TEST_EVENT

_BATCH = 500


def relay_events(context: Context) -> int:
    """Relay everything that is not relayed yet; how many events that was."""
    total = 0
    while _has_unrelayed(context):
        relayed = run_in_transaction(context.sessions, lambda session: _relay_batch(session, context.clock()))
        total += relayed
        if relayed < _BATCH:
            break
    return total


def _has_unrelayed(context: Context) -> bool:
    with session_scope(context.sessions, is_reader=True) as session:
        return session.scalar(select(Event.id).where(Event.relayed_at.is_(None)).limit(1)) is not None


def _relay_batch(session: Session, now: datetime) -> int:
    unrelayed = select(Event).where(Event.relayed_at.is_(None)).order_by(Event.id).limit(_BATCH)
    events = session.scalars(unrelayed.with_for_update(skip_locked=True)).all()
    endpoints = _enabled_endpoints(session, {event.project_id for event in events})
    rows = [
        _delivery(endpoint, event, now)
        for event in events
        for endpoint in endpoints[event.project_id]
        if _is_meant_for(endpoint, event)
    ]
    if rows:
        session.execute(insert(WebhookDelivery), rows)
    for event in events:
        event.relayed_at = now
    return len(events)


def _enabled_endpoints(session: Session, project_ids: set[str]) -> dict[str, list[WebhookEndpoint]]:
    """By project, locked against deletion until the deliveries are in."""
    enabled = select(WebhookEndpoint).where(
        WebhookEndpoint.project_id.in_(project_ids), WebhookEndpoint.disabled_at.is_(None)
    )
    found: dict[str, list[WebhookEndpoint]] = defaultdict(list)
    for endpoint in session.scalars(enabled.order_by(WebhookEndpoint.id).with_for_update(read=True, key_share=True)):
        found[endpoint.project_id].append(endpoint)
    return found


def _is_meant_for(endpoint: WebhookEndpoint, event: Event) -> bool:
    if event.type == TEST_EVENT:
        return event.data.get("endpoint_id") == endpoint.id
    return is_subscribed(endpoint.event_types, event.type)


def _delivery(endpoint: WebhookEndpoint, event: Event, now: datetime) -> dict[str, Any]:
    return {
        "id": new_id("whd"),
        "endpoint_id": endpoint.id,
        "event_id": event.id,
        "state": DeliveryState.PENDING.value,
        "tries": 0,
        "due_at": now + DELAYS[0],
        "created_at": now,
    }
