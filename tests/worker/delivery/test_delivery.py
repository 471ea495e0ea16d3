"""Deliveries from real databases to real receivers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select, update
from standardwebhooks import Webhook, WebhookVerificationError

from service.context import Context
from service.db.models import Event, Project, WebhookDelivery, WebhookEndpoint
from service.db.outbox import emit
from service.db.session import session_scope
from service.domain.webhook_schedule import DELAYS, JITTER, DeliveryState
from service.webhooks.sender import WebhookSender
from service.webhooks.service import create_endpoint, replay_delivery, rotate_secret, set_enabled
from tests.worker.delivery.receivers import Received, Receiver, run_receiver
from worker.delivery.claims import PER_ENDPOINT, claim_due
from worker.delivery.deliver import deliver_due
from worker.delivery.relay import relay_events

T0 = datetime(2026, 3, 1, tzinfo=UTC)
PROJECT = "prj-test"


class ManualClock:
    def __init__(self, now: datetime = T0) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ground(context: Context, clock: ManualClock) -> Context:
    """A context on the manual clock, with a project."""
    with session_scope(context.sessions) as session:
        session.add(Project(id=PROJECT, name="test", created_at=T0))
    return replace(context, clock=clock)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with run_receiver() as running:
        yield running


@pytest.fixture
def sender() -> WebhookSender:
    return WebhookSender(allow_private=True, timeout_seconds=5)


def register(context: Context, url: str, event_types: list[str] | None = None) -> tuple[str, str]:
    """An endpoint's id and secret."""
    with session_scope(context.sessions) as session:
        made = create_endpoint(
            session,
            context.sealer,
            project_id=PROJECT,
            url=url,
            event_types=event_types or [],
            allow_private=True,
            now=context.clock(),
        )
        return made.endpoint.id, made.secret


def happen(context: Context, kind: str = "job.running", count: int = 1) -> None:
    with session_scope(context.sessions) as session:
        for number in range(count):
            emit(session, project_id=PROJECT, job_id="job-1", kind=kind, at=context.clock(), number=number)


def deliveries(context: Context) -> list[WebhookDelivery]:
    with session_scope(context.sessions, is_reader=True) as session:
        return list(session.scalars(select(WebhookDelivery).order_by(WebhookDelivery.event_id)))


def start_delivering(context: Context, database: str) -> subprocess.Popen[bytes]:
    """A worker's process that delivers what is due."""
    code = (
        "from service.context import make_context; from service.settings import Settings;"
        "from worker.delivery.deliver import deliver_due, make_sender;"
        "settings = Settings(); deliver_due(make_context(settings), make_sender(settings))"
    )
    environment = {
        **os.environ,
        "GODWIT_DATA_DIR": str(context.settings.data_dir),
        "GODWIT_DATABASE_URL": database,
        "GODWIT_ALLOW_PRIVATE_WEBHOOKS": "true",
    }
    return subprocess.Popen([sys.executable, "-c", code], env=environment, cwd=Path(__file__).parents[3])  # noqa: S603


def event_types(context: Context) -> list[str]:
    with session_scope(context.sessions, is_reader=True) as session:
        return list(session.scalars(select(Event.type).order_by(Event.id)))


def test_an_event_arrives_signed(
    ground: Context, clock: ManualClock, receiver: Receiver, sender: WebhookSender
) -> None:
    clock.now = datetime.now(UTC)
    _, secret = register(ground, receiver.url)
    happen(ground)
    assert relay_events(ground) == 1
    assert deliver_due(ground, sender) == 1
    (request,) = receiver.received
    body = Webhook(secret).verify(request.body, request.headers)
    assert body["type"] == "job.running"
    assert body["data"] == {"number": 0, "project_id": PROJECT, "job_id": "job-1"}
    assert datetime.fromisoformat(body["timestamp"]) == clock.now
    (delivery,) = deliveries(ground)
    assert (delivery.state, delivery.tries, delivery.response_status) == ("delivered", 1, 204)


def test_a_wrong_secret_does_not_verify(
    ground: Context, clock: ManualClock, receiver: Receiver, sender: WebhookSender
) -> None:
    clock.now = datetime.now(UTC)
    register(ground, receiver.url)
    _, other_secret = register(ground, receiver.url, ["price.rejected"])
    happen(ground)
    relay_events(ground)
    deliver_due(ground, sender)
    with pytest.raises(WebhookVerificationError):
        Webhook(other_secret).verify(receiver.received[0].body, receiver.received[0].headers)


def test_a_rotated_secret_and_the_one_before_both_verify_for_a_day(
    ground: Context, clock: ManualClock, receiver: Receiver, sender: WebhookSender
) -> None:
    rotated_at = clock.now = datetime.now(UTC) - timedelta(hours=24)
    endpoint_id, old = register(ground, receiver.url)
    with session_scope(ground.sessions) as session:
        new = rotate_secret(session, ground.sealer, PROJECT, endpoint_id, now=rotated_at).secret
    for since_rotation in (timedelta(hours=23, minutes=58), timedelta(hours=24)):
        clock.now = rotated_at + since_rotation
        happen(ground)
        relay_events(ground)
        deliver_due(ground, sender)
    before, after = receiver.received
    for secret, request in ((new, before), (old, before), (new, after)):
        Webhook(secret).verify(request.body, request.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(old).verify(after.body, after.headers)


def test_a_receiver_down_for_three_days_gets_the_event_in_the_end(
    ground: Context, clock: ManualClock, sender: WebhookSender
) -> None:
    """Fault 36, on a scaled clock: every try on schedule, none before."""

    def answer(_request: Received) -> tuple[int, dict[str, str], bytes]:
        return (500, {}, b"down") if clock.now - T0 < timedelta(days=3) else (200, {}, b"")

    with run_receiver(answer) as receiver:
        register(ground, receiver.url)
        happen(ground)
        relay_events(ground)
        for tries in range(1, len(DELAYS)):
            assert deliver_due(ground, sender) == 1
            (delivery,) = deliveries(ground)
            assert (delivery.state, delivery.tries) == ("pending", tries)
            assert delivery.due_at is not None
            assert DELAYS[tries] <= delivery.due_at - clock.now <= DELAYS[tries] * (1 + JITTER)
            clock.now = delivery.due_at - timedelta(microseconds=1)
            assert deliver_due(ground, sender) == 0
            clock.now = delivery.due_at
        assert deliver_due(ground, sender) == 1
        assert deliveries(ground)[0].state == DeliveryState.DELIVERED
        assert {request.headers["webhook-id"] for request in receiver.received} == {
            receiver.received[0].headers["webhook-id"]
        }


def test_the_end_of_the_schedule_is_a_dead_letter_that_can_be_replayed(
    ground: Context, clock: ManualClock, sender: WebhookSender
) -> None:
    statuses = [500] * len(DELAYS) + [200]
    with run_receiver(lambda _request: (statuses.pop(0), {}, b"")) as receiver:
        endpoint_id, _ = register(ground, receiver.url, ["job.*"])
        happen(ground)
        relay_events(ground)
        for _ in DELAYS:
            assert deliver_due(ground, sender) == 1
            clock.now += timedelta(hours=27)
        (dead,) = deliveries(ground)
        assert (dead.state, dead.due_at, dead.tries) == ("dead", None, len(DELAYS))
        assert event_types(ground) == ["job.running", "webhook.gave_up"]
        assert deliver_due(ground, sender) == 0
        with session_scope(ground.sessions) as session:
            replay_delivery(session, PROJECT, endpoint_id, dead.id, now=clock.now)
        assert deliver_due(ground, sender) == 1
        assert (deliveries(ground)[0].state, deliveries(ground)[0].tries) == ("delivered", 1)
        assert receiver.received[0].headers["webhook-id"] == receiver.received[-1].headers["webhook-id"]


def test_a_dead_letter_about_webhooks_raises_no_further_event(ground: Context, sender: WebhookSender) -> None:
    with run_receiver(lambda _request: (410, {}, b"")) as receiver:
        register(ground, receiver.url)
        happen(ground, "webhook.gave_up")
        relay_events(ground)
        deliver_due(ground, sender)
    assert event_types(ground) == ["webhook.gave_up"]


def test_gone_disables_the_endpoint_and_holds_the_rest(ground: Context, sender: WebhookSender) -> None:
    statuses = [410, 200, 200]
    with run_receiver(lambda _request: (statuses.pop(0), {}, b"")) as receiver:
        endpoint_id, _ = register(ground, receiver.url, ["job.*"])
        happen(ground)
        relay_events(ground)
        deliver_due(ground, sender)
        happen(ground)
        relay_events(ground)
        assert deliver_due(ground, sender) == 0
        assert event_types(ground)[1] == "webhook.disabled"
        with session_scope(ground.sessions) as session:
            assert session.get_one(WebhookEndpoint, endpoint_id).disabled_reason == "the receiver answered 410 Gone"
            set_enabled(session, PROJECT, endpoint_id, is_enabled=True, now=T0)
        happen(ground)
        relay_events(ground)
        assert deliver_due(ground, sender) == 1
        assert [delivery.state for delivery in deliveries(ground)] == ["dead", "delivered"]


def test_a_slow_receiver_delays_no_other(ground: Context, receiver: Receiver, sender: WebhookSender) -> None:
    """The slow one answers only after the fast one has got everything."""
    has_all, arrived = threading.Event(), threading.Semaphore(0)

    def fast(_request: Received) -> tuple[int, dict[str, str], bytes]:
        if len(receiver.received) == 12:
            has_all.set()
        return 200, {}, b""

    def slow(_request: Received) -> tuple[int, dict[str, str], bytes]:
        arrived.release()
        return (200 if has_all.wait(4) else 500), {}, b""

    receiver.answer = fast
    with run_receiver(slow) as slow_receiver:
        slow_id, _ = register(ground, slow_receiver.url)
        register(ground, receiver.url)
        happen(ground, count=12)
        relay_events(ground)
        deliver_due(ground, sender)
        assert len(receiver.received) == 12
        assert {delivery.state for delivery in deliveries(ground)} == {"delivered"}
        assert len([one for one in deliveries(ground) if one.endpoint_id == slow_id]) == 12


def test_an_endpoint_is_held_few_times_at_once(ground: Context) -> None:
    register(ground, "http://127.0.0.1:9/")
    register(ground, "http://127.0.0.1:9/other")
    happen(ground, count=5)
    relay_events(ground)
    assert len(claim_due(ground, 100)) == 2 * PER_ENDPOINT
    assert claim_due(ground, 100) == []


def test_two_workers_at_once_send_each_event_once(ground: Context, receiver: Receiver, sender: WebhookSender) -> None:
    """Fault 38's kind: two relays and two deliveries race for the same events."""
    register(ground, receiver.url)
    happen(ground, count=20)
    barrier = threading.Barrier(2)

    def work() -> None:
        barrier.wait()
        relay_events(ground)
        deliver_due(ground, sender)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    relay_events(ground)
    deliver_due(ground, sender)
    numbers = [json.loads(request.body)["data"]["number"] for request in receiver.received]
    assert sorted(numbers) == list(range(20))
    assert {delivery.tries for delivery in deliveries(ground)} == {1}


def test_a_worker_killed_while_it_sends_is_replaced_after_its_claim(
    ground: Context, database: str, sender: WebhookSender
) -> None:
    """A real process, SIGKILL between the POST and its answer. The receiver can tell the second one by its id."""
    arrived, is_over = threading.Event(), threading.Event()

    def block_the_first(_request: Received) -> tuple[int, dict[str, str], bytes]:
        if not arrived.is_set():
            arrived.set()
            is_over.wait(60)
        return 200, {}, b""

    with run_receiver(block_the_first) as receiver:
        register(ground, receiver.url)
        happen(ground)
        relay_events(ground)
        worker = start_delivering(ground, database)
        assert arrived.wait(60)
        worker.kill()
        worker.wait()
        is_over.set()
        assert deliver_due(ground, sender) == 0
        with session_scope(ground.sessions) as session:
            past = datetime.now(UTC) - timedelta(seconds=1)
            session.execute(update(WebhookDelivery).values(claimed_until=past))
        assert deliver_due(ground, sender) == 1
        assert [delivery.state for delivery in deliveries(ground)] == ["delivered"]
        first, second = receiver.received
        assert first.headers["webhook-id"] == second.headers["webhook-id"]


def test_a_stale_worker_records_nothing(ground: Context, sender: WebhookSender) -> None:
    """Its claim is taken over while it waits for the answer; the answer then counts for nothing."""

    def lose_the_claim(_request: Received) -> tuple[int, dict[str, str], bytes]:
        with session_scope(ground.sessions) as session:
            session.execute(update(WebhookDelivery).values(claim_token="another", tries=7))  # noqa: S106
        return 200, {}, b""

    with run_receiver(lose_the_claim) as receiver:
        register(ground, receiver.url)
        happen(ground)
        relay_events(ground)
        deliver_due(ground, sender)
    (delivery,) = deliveries(ground)
    assert (delivery.state, delivery.tries, delivery.claim_token) == ("pending", 7, "another")


def test_a_delivery_replayed_at_the_receiver_can_be_refused(
    ground: Context, clock: ManualClock, receiver: Receiver, sender: WebhookSender
) -> None:
    """Fault 39: by its id at once, by its timestamp later, and neither can be changed without breaking the signature."""
    clock.now = datetime.now(UTC) - timedelta(minutes=6)
    _, secret = register(ground, receiver.url)
    happen(ground, count=2)
    relay_events(ground)
    deliver_due(ground, sender)
    captured = receiver.received[0]
    with pytest.raises(WebhookVerificationError, match="too old"):
        Webhook(secret).verify(captured.body, captured.headers)
    renewed = {**captured.headers, "webhook-timestamp": str(int(datetime.now(UTC).timestamp()))}
    with pytest.raises(WebhookVerificationError, match="signature"):
        Webhook(secret).verify(captured.body, renewed)
    assert len({request.headers["webhook-id"] for request in receiver.received}) == 2


def test_only_subscribed_endpoints_of_the_project_get_an_event(ground: Context, receiver: Receiver) -> None:
    with session_scope(ground.sessions) as session:
        session.add(Project(id="prj-other", name="other", created_at=T0))
    everything, _ = register(ground, receiver.url)
    budgets, _ = register(ground, receiver.url, ["budget.*"])
    with session_scope(ground.sessions) as session:
        emit(session, project_id="prj-other", job_id=None, kind="job.running", at=T0)
    happen(ground, "job.running")
    happen(ground, "budget.threshold_reached")
    happen(ground, "webhook.test")
    with session_scope(ground.sessions) as session:
        emit(session, project_id=PROJECT, job_id=None, kind="webhook.test", at=T0, endpoint_id=budgets)
    assert relay_events(ground) == 5
    assert sorted((one.event_id, one.endpoint_id) for one in deliveries(ground)) == sorted(
        [(2, everything), (3, everything), (3, budgets), (5, budgets)]
    )


def test_a_long_backlog_is_relayed_whole(ground: Context) -> None:
    register(ground, "http://127.0.0.1:9/")
    happen(ground, count=1100)
    assert relay_events(ground) == 1100
    with session_scope(ground.sessions, is_reader=True) as session:
        assert session.scalar(select(func.count()).select_from(WebhookDelivery)) == 1100
    assert relay_events(ground) == 0


def test_no_secret_is_kept_in_the_clear_or_in_an_event(
    ground: Context, receiver: Receiver, sender: WebhookSender, capsys: pytest.CaptureFixture[str]
) -> None:
    _, secret = register(ground, receiver.url)
    happen(ground)
    relay_events(ground)
    deliver_due(ground, sender)
    with session_scope(ground.sessions, is_reader=True) as session:
        row = session.scalars(select(WebhookEndpoint)).one()
        events = [event.data for event in session.scalars(select(Event))]
    printed = capsys.readouterr()
    raw = secret.removeprefix("whsec_")
    assert raw.encode() not in row.sealed_secret
    assert all(raw not in shown for shown in (json.dumps(events), printed.out, printed.err, str(receiver.received)))
