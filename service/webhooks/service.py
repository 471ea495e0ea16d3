"""Endpoints and their deliveries. Nothing here commits, and nothing here sends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, func, select, tuple_
from sqlalchemy.orm import Session

from service.api.problems import Problem, invalid, not_found
from service.db.models import Event, WebhookDelivery, WebhookEndpoint
from service.db.outbox import emit
from service.domain.event_types import EVENT_FILTERS, find_nearest_filter
from service.domain.webhook_schedule import DeliveryState
from service.ids import new_id
from service.seal import Sealer
from service.webhooks.signing import make_secret, rotate
from service.webhooks.ssrf import Refused, parse_target

TEST_EVENT = "webhook.test"
MAX_ENDPOINTS = 20
DISABLED_BY_USER = "disabled by a user"


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointWithSecret:
    """An endpoint in the one moment when its secret is shown."""

    endpoint: WebhookEndpoint
    secret: str


def create_endpoint(
    session: Session,
    sealer: Sealer,
    *,
    project_id: str,
    url: str,
    event_types: list[str],
    allow_private: bool,
    now: datetime,
) -> EndpointWithSecret:
    """Errors: Problem 422 for a URL that may not be sent to or an unknown event type, 409 past the limit a project."""
    _check_filters(event_types)
    try:
        parse_target(url, allow_private=allow_private)
    except Refused as refusal:
        raise invalid("url", str(refusal), "Give the https URL of a public receiver.") from refusal
    count = session.scalar(select(func.count()).where(WebhookEndpoint.project_id == project_id))
    if (count or 0) >= MAX_ENDPOINTS:
        raise Problem(
            409, "too_many_webhooks", f"A project has at most {MAX_ENDPOINTS} webhooks.", remedy="Delete one first."
        )
    secret = make_secret()
    endpoint = WebhookEndpoint(
        id=new_id("wh"),
        project_id=project_id,
        url=url,
        sealed_secret=sealer.seal({"current": secret}),
        event_types=event_types,
        created_at=now,
    )
    session.add(endpoint)
    session.flush()
    return EndpointWithSecret(endpoint=endpoint, secret=secret)


def list_endpoints(session: Session, project_id: str) -> list[WebhookEndpoint]:
    """All of a project's, oldest first; MAX_ENDPOINTS bounds them."""
    return list(
        session.scalars(
            select(WebhookEndpoint)
            .where(WebhookEndpoint.project_id == project_id)
            .order_by(WebhookEndpoint.created_at, WebhookEndpoint.id)
        )
    )


def get_endpoint(session: Session, project_id: str, endpoint_id: str) -> WebhookEndpoint:
    """Errors: Problem 404."""
    endpoint = session.scalar(
        select(WebhookEndpoint).where(WebhookEndpoint.id == endpoint_id, WebhookEndpoint.project_id == project_id)
    )
    if endpoint is None:
        raise not_found("webhook")
    return endpoint


def delete_endpoint(session: Session, project_id: str, endpoint_id: str) -> None:
    """With its deliveries. Errors: Problem 404."""
    endpoint = get_endpoint(session, project_id, endpoint_id)
    session.refresh(endpoint, with_for_update=True)  # the relay adds no delivery behind our back
    session.execute(delete(WebhookDelivery).where(WebhookDelivery.endpoint_id == endpoint.id))
    session.delete(endpoint)


def set_enabled(
    session: Session, project_id: str, endpoint_id: str, *, is_enabled: bool, now: datetime
) -> WebhookEndpoint:
    """While disabled, new events pass it by and what is pending waits. Errors: Problem 404."""
    endpoint = get_endpoint(session, project_id, endpoint_id)
    if is_enabled:
        endpoint.disabled_at, endpoint.disabled_reason = None, None
    elif endpoint.disabled_at is None:
        endpoint.disabled_at, endpoint.disabled_reason = now, DISABLED_BY_USER
    return endpoint


def rotate_secret(
    session: Session, sealer: Sealer, project_id: str, endpoint_id: str, *, now: datetime
) -> EndpointWithSecret:
    """A new secret; deliveries carry both signatures for a day. Errors: Problem 404."""
    endpoint = get_endpoint(session, project_id, endpoint_id)
    values = rotate(sealer.unseal(endpoint.sealed_secret), now)
    endpoint.sealed_secret = sealer.seal(values)
    return EndpointWithSecret(endpoint=endpoint, secret=values["current"])


def queue_test(session: Session, project_id: str, endpoint_id: str, *, now: datetime) -> None:
    """An event for this endpoint alone. Errors: Problem 404, 409 while it is disabled."""
    endpoint = get_endpoint(session, project_id, endpoint_id)
    _check_enabled(endpoint)
    emit(session, project_id=project_id, job_id=None, kind=TEST_EVENT, at=now, endpoint_id=endpoint.id)


def list_deliveries(
    session: Session, endpoint_id: str, *, state: DeliveryState | None, after: tuple[datetime, str] | None, limit: int
) -> list[tuple[WebhookDelivery, Event]]:
    """Newest first, each with its event."""
    query = select(WebhookDelivery, Event).join(Event, Event.id == WebhookDelivery.event_id)
    query = query.where(WebhookDelivery.endpoint_id == endpoint_id)
    if state is not None:
        query = query.where(WebhookDelivery.state == state)
    if after is not None:
        query = query.where(tuple_(WebhookDelivery.created_at, WebhookDelivery.id) < after)
    newest_first = query.order_by(WebhookDelivery.created_at.desc(), WebhookDelivery.id.desc())
    return [(row[0], row[1]) for row in session.execute(newest_first.limit(limit))]


def replay_delivery(
    session: Session, project_id: str, endpoint_id: str, delivery_id: str, *, now: datetime
) -> tuple[WebhookDelivery, Event]:
    """Send it once more, with a schedule of its own. One that is pending is only brought forward.

    Errors: Problem 404, 409 while the endpoint is disabled.
    """
    endpoint = get_endpoint(session, project_id, endpoint_id)
    delivery = session.scalar(
        select(WebhookDelivery)
        .where(WebhookDelivery.id == delivery_id, WebhookDelivery.endpoint_id == endpoint.id)
        .with_for_update()
    )
    if delivery is None:
        raise not_found("delivery")
    _check_enabled(endpoint)
    if delivery.state != DeliveryState.PENDING:
        delivery.state, delivery.tries = DeliveryState.PENDING, 0
    delivery.due_at = now
    return delivery, session.get_one(Event, delivery.event_id)


def _check_filters(event_types: list[str]) -> None:
    for place, wanted in enumerate(event_types):
        if wanted not in EVENT_FILTERS:
            nearest = find_nearest_filter(wanted)
            remedy = f"Did you mean '{nearest}'?" if nearest else f"Known are {', '.join(EVENT_FILTERS)}."
            raise invalid(f"event_types.{place}", f"there is no event type '{wanted}'", remedy)


def _check_enabled(endpoint: WebhookEndpoint) -> None:
    if endpoint.disabled_at is not None:
        raise Problem(409, "webhook_disabled", "The webhook is disabled.", remedy="Enable it first.")
