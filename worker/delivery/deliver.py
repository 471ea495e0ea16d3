"""Send the deliveries that are due: claim in one transaction, POST outside of any, record in another under the claim.

A worker that dies between POST and record sends again once its claim is over: at least once, with the same `webhook-id`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import timedelta

import structlog
from cryptography.fernet import InvalidToken
from sqlalchemy import update
from sqlalchemy.orm import Session

from service.context import Context
from service.db.models import WebhookDelivery, WebhookEndpoint
from service.db.outbox import emit
from service.db.session import run_in_transaction
from service.domain.webhook_schedule import DeliveryState, Verdict, judge_try
from service.settings import Settings
from service.webhooks.sender import Answer, WebhookSender
from service.webhooks.signing import make_body, make_headers, message_id
from worker.delivery.claims import ClaimedDelivery, claim_due

THREADS = 16
PATIENCE = timedelta(seconds=20)
_LOOK_SECONDS = 0.5
GONE_REASON = "the receiver answered 410 Gone"
_log = structlog.get_logger(__name__)


def make_sender(settings: Settings) -> WebhookSender:
    """The sender that these settings ask for; one a process."""
    return WebhookSender(allow_private=settings.allow_private_webhooks)


def deliver_due(context: Context, client: WebhookSender, *, patience: timedelta = PATIENCE) -> int:
    """Send until nothing is due and nothing is under way; how many tries that was.

    What falls due while slow receivers are still being waited for is sent meanwhile, until `patience` is over. Then
    nothing new is begun, so that a call ends within it and one exchange's deadline.
    """
    ends, count = time.monotonic() + patience.total_seconds(), 0
    running: set[Future[None]] = set()
    with ThreadPoolExecutor(THREADS, thread_name_prefix="webhook") as pool:
        while True:
            claimed = claim_due(context, THREADS - len(running)) if time.monotonic() < ends or not count else []
            running |= {pool.submit(_try_once, context, client, delivery) for delivery in claimed}
            count += len(claimed)
            if not running:
                return count
            done, running = wait(running, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()


def _try_once(context: Context, client: WebhookSender, delivery: ClaimedDelivery) -> None:
    answer = _send(context, client, delivery)
    now = context.clock()
    verdict = judge_try(tries=delivery.tries + 1, status=answer.status, at=now, jitter=random.random())  # noqa: S311
    run_in_transaction(context.sessions, _recording(delivery, answer, verdict, context))
    _log.info(
        "webhook_tried",
        delivery=delivery.id,
        endpoint=delivery.endpoint_id,
        state=verdict.state.value,
        tries=delivery.tries + 1,
        status=answer.status,
        error=answer.error,
        latency_ms=answer.latency_ms,
    )


def _send(context: Context, client: WebhookSender, delivery: ClaimedDelivery) -> Answer:
    try:
        secrets = context.sealer.unseal(delivery.sealed_secret)
    except InvalidToken:
        error = "the endpoint's secret cannot be read with this service's key; rotate it"
        return Answer(status=None, excerpt=None, error=error, latency_ms=0)
    body = make_body(
        event_type=delivery.event_type,
        at=delivery.event_at,
        project_id=delivery.project_id,
        job_id=delivery.job_id,
        data=delivery.data,
    )
    id_ = message_id(delivery.event_id, delivery.event_at)
    return client.post(delivery.url, make_headers(secrets, id_, context.clock(), body), body)


def _recording(
    delivery: ClaimedDelivery, answer: Answer, verdict: Verdict, context: Context
) -> Callable[[Session], None]:
    def record(session: Session) -> None:
        now = context.clock()
        is_ours = session.execute(
            update(WebhookDelivery)
            .where(WebhookDelivery.id == delivery.id, WebhookDelivery.claim_token == delivery.token)
            .values(
                state=verdict.state,
                tries=delivery.tries + 1,
                due_at=verdict.due_at,
                claim_token=None,
                claimed_until=None,
                response_status=answer.status,
                response_excerpt=answer.excerpt,
                error=answer.error,
                latency_ms=answer.latency_ms,
                delivered_at=now if verdict.state == DeliveryState.DELIVERED else None,
            )
        )
        if is_ours.rowcount == 1:  # pyright: ignore[reportAttributeAccessIssue]
            _follow_up(session, delivery, verdict, context)

    return record


def _follow_up(session: Session, delivery: ClaimedDelivery, verdict: Verdict, context: Context) -> None:
    """Disable an endpoint that is gone; tell of a dead letter, unless it was itself about webhooks."""
    now = context.clock()
    if verdict.is_gone:
        session.execute(
            update(WebhookEndpoint)
            .where(WebhookEndpoint.id == delivery.endpoint_id, WebhookEndpoint.disabled_at.is_(None))
            .values(disabled_at=now, disabled_reason=GONE_REASON)
        )
    if verdict.state == DeliveryState.DEAD and not delivery.event_type.startswith("webhook."):
        emit(
            session,
            project_id=delivery.project_id,
            job_id=delivery.job_id,
            kind="webhook.disabled" if verdict.is_gone else "webhook.gave_up",
            at=now,
            endpoint_id=delivery.endpoint_id,
            delivery_id=delivery.id,
            event_type=delivery.event_type,
        )
