"""What the webhook endpoints take and show."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from service.db.models import WebhookDelivery, WebhookEndpoint
from service.domain.event_types import EVENT_FILTERS
from service.domain.webhook_schedule import DeliveryState
from service.webhooks.ssrf import MAX_URL_LENGTH

EventType = Annotated[
    str,
    Field(
        max_length=64,
        pattern=r"^[a-z_]+(\.[a-z_]+)*(\.\*)?$",
        examples=["job.*"],
        json_schema_extra={"enum": list(EVENT_FILTERS)},
    ),
]


class WebhookCreate(BaseModel):
    """A receiver. `https` only, unless the service allows private targets."""

    model_config = ConfigDict(extra="forbid")

    url: str = Field(min_length=1, max_length=MAX_URL_LENGTH, examples=["https://hooks.example.com/godwit"])
    event_types: list[EventType] = Field(
        default_factory=list, max_length=50, description="none: every event; `job.*`: every event of jobs"
    )


class WebhookShown(BaseModel):
    id: str
    url: str
    event_types: list[str]
    is_enabled: bool
    disabled_at: datetime | None
    disabled_reason: str | None
    created_at: datetime


class WebhookCreated(WebhookShown):
    """The only answer that shows the secret, apart from a rotation's."""

    secret: str = Field(description="`whsec_…`; verify signatures with it")


class DeliveryShown(BaseModel):
    id: str
    event_id: int
    event_type: str
    message_id: str = Field(description="the `webhook-id` header: the same for every try and replay")
    state: DeliveryState
    tries: int
    due_at: datetime | None = Field(description="when it is tried next, while pending")
    response_status: int | None
    response_excerpt: str | None
    error: str | None
    latency_ms: int | None
    created_at: datetime
    delivered_at: datetime | None


class TestQueued(BaseModel):
    """The event `webhook.test` is on its way; the endpoint's deliveries show what came of it."""

    __test__ = False

    event_type: str


def show_endpoint(row: WebhookEndpoint) -> WebhookShown:
    return WebhookShown(
        id=row.id,
        url=row.url,
        event_types=row.event_types,
        is_enabled=row.disabled_at is None,
        disabled_at=row.disabled_at,
        disabled_reason=row.disabled_reason,
        created_at=row.created_at,
    )


def show_created(row: WebhookEndpoint, secret: str) -> WebhookCreated:
    return WebhookCreated(**show_endpoint(row).model_dump(), secret=secret)


def show_delivery(row: WebhookDelivery, event_type: str, message_id: str) -> DeliveryShown:
    return DeliveryShown(
        id=row.id,
        event_id=row.event_id,
        event_type=event_type,
        message_id=message_id,
        state=DeliveryState(row.state),
        tries=row.tries,
        due_at=row.due_at,
        response_status=row.response_status,
        response_excerpt=row.response_excerpt,
        error=row.error,
        latency_ms=row.latency_ms,
        created_at=row.created_at,
        delivered_at=row.delivered_at,
    )
