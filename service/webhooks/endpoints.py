"""`/v1/webhooks`."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query
from fastapi.responses import JSONResponse

from service.api.auth import Operator, Viewer
from service.api.dependencies import Ctx, Db, Now, ReadDb
from service.api.idempotency import OnceDep
from service.api.pagination import Cursor, Limit, Page, decode_time_cursor, encode_cursor
from service.api.problems import documented
from service.api.routing import make_router
from service.db.models import Event, WebhookDelivery
from service.domain.webhook_schedule import DeliveryState
from service.webhooks import service
from service.webhooks.schemas import (
    DeliveryShown,
    TestQueued,
    WebhookCreate,
    WebhookCreated,
    WebhookShown,
    show_created,
    show_delivery,
    show_endpoint,
)
from service.webhooks.signing import message_id

router = make_router("/v1/webhooks", "webhooks")
_CONFLICT = documented(409)
Id = Annotated[str, Path(max_length=64)]


@router.post("", status_code=201, response_model=WebhookCreated, responses=_CONFLICT)
def create_webhook(
    body: WebhookCreate, who: Operator, session: Db, now: Now, context: Ctx, once: OnceDep
) -> JSONResponse:
    """Register a receiver. The secret is shown this once."""

    def create() -> WebhookCreated:
        made = service.create_endpoint(
            session,
            context.sealer,
            project_id=who.project_id,
            url=body.url,
            event_types=body.event_types,
            allow_private=context.settings.allow_private_webhooks,
            now=now,
        )
        return show_created(made.endpoint, made.secret)

    return once.answer(session, who, create)


@router.get("")
def list_webhooks(who: Viewer, session: ReadDb) -> Page[WebhookShown]:
    """All of the project's webhooks, oldest first."""
    return Page(items=[show_endpoint(row) for row in service.list_endpoints(session, who.project_id)])


@router.get("/{webhook_id}")
def get_webhook(webhook_id: Id, who: Viewer, session: ReadDb) -> WebhookShown:
    """Without its secret."""
    return show_endpoint(service.get_endpoint(session, who.project_id, webhook_id))


@router.delete("/{webhook_id}", status_code=204)
def delete_webhook(webhook_id: Id, who: Operator, session: Db) -> None:
    """Delete it with its deliveries."""
    service.delete_endpoint(session, who.project_id, webhook_id)


@router.post("/{webhook_id}/enable")
def enable_webhook(webhook_id: Id, who: Operator, session: Db, now: Now) -> WebhookShown:
    """Send to it again; what was pending goes out."""
    return show_endpoint(service.set_enabled(session, who.project_id, webhook_id, is_enabled=True, now=now))


@router.post("/{webhook_id}/disable")
def disable_webhook(webhook_id: Id, who: Operator, session: Db, now: Now) -> WebhookShown:
    """Send nothing; events meanwhile pass it by."""
    return show_endpoint(service.set_enabled(session, who.project_id, webhook_id, is_enabled=False, now=now))


@router.post("/{webhook_id}/rotate-secret", response_model=WebhookCreated)
def rotate_webhook_secret(
    webhook_id: Id, who: Operator, session: Db, now: Now, context: Ctx, once: OnceDep
) -> JSONResponse:
    """A new secret, shown this once. For a day, deliveries carry a signature by the old one too."""

    def rotate() -> WebhookCreated:
        made = service.rotate_secret(session, context.sealer, who.project_id, webhook_id, now=now)
        return show_created(made.endpoint, made.secret)

    return once.answer(session, who, rotate, status_code=200)


@router.post("/{webhook_id}/test", status_code=202, responses=_CONFLICT)
def test_webhook(webhook_id: Id, who: Operator, session: Db, now: Now) -> TestQueued:
    """Send the event `webhook.test` to this webhook alone."""
    service.queue_test(session, who.project_id, webhook_id, now=now)
    return TestQueued(event_type=service.TEST_EVENT)


@router.get("/{webhook_id}/deliveries")
def list_webhook_deliveries(
    webhook_id: Id,
    who: Viewer,
    session: ReadDb,
    state: Annotated[DeliveryState | None, Query()] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[DeliveryShown]:
    """Newest first."""
    endpoint = service.get_endpoint(session, who.project_id, webhook_id)
    after = decode_time_cursor(cursor)
    rows = service.list_deliveries(session, endpoint.id, state=state, after=after, limit=limit + 1)
    last = rows[limit - 1][0] if len(rows) > limit else None
    return Page(
        items=[_show(delivery, event) for delivery, event in rows[:limit]],
        next_cursor=encode_cursor(last.created_at.isoformat(), last.id) if last else None,
    )


@router.post(
    "/{webhook_id}/deliveries/{delivery_id}/replay",
    status_code=202,
    responses=_CONFLICT,
)
def replay_webhook_delivery(webhook_id: Id, delivery_id: Id, who: Operator, session: Db, now: Now) -> DeliveryShown:
    """Send it once more. The receiver sees the same `webhook-id`."""
    return _show(*service.replay_delivery(session, who.project_id, webhook_id, delivery_id, now=now))


def _show(delivery: WebhookDelivery, event: Event) -> DeliveryShown:
    return show_delivery(delivery, event.type, message_id(event.id, event.at))
