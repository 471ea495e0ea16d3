"""`/v1/webhooks` over the whole API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select

from service.context import Context
from service.db.models import WebhookDelivery, WebhookEndpoint
from service.db.outbox import emit
from service.db.session import session_scope
from service.settings import Settings
from service.webhooks.sender import WebhookSender
from tests.worker.delivery.receivers import run_receiver
from worker.delivery.deliver import deliver_due
from worker.delivery.relay import relay_events

URL = "https://hooks.example.com/godwit"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"allow_private_webhooks": True})


def create(client: TestClient, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/webhooks", json={"url": URL, **body})
    assert answer.status_code == 201, answer.text
    return answer.json()


def send_all(context: Context) -> None:
    relay_events(context)
    deliver_due(context, WebhookSender(allow_private=True, timeout_seconds=5))


def test_the_secret_is_shown_once(client: TestClient, context: Context) -> None:
    made = create(client, event_types=["job.*"])
    assert made["secret"].startswith("whsec_")
    shown = client.get(f"/v1/webhooks/{made['id']}").json()
    listed = client.get("/v1/webhooks").json()["items"]
    assert "secret" not in shown
    assert listed == [shown]
    assert (shown["url"], shown["event_types"], shown["is_enabled"]) == (URL, ["job.*"], True)
    with session_scope(context.sessions, is_reader=True) as session:
        sealed = session.scalars(select(WebhookEndpoint.sealed_secret)).one()
    assert context.sealer.unseal(sealed) == {"current": made["secret"]}


def test_a_create_that_is_repeated_makes_one(client: TestClient) -> None:
    headers = {"Idempotency-Key": "once"}
    first, second = (client.post("/v1/webhooks", json={"url": URL}, headers=headers) for _ in range(2))
    assert first.json() == second.json()
    assert len(client.get("/v1/webhooks").json()["items"]) == 1
    other = client.post("/v1/webhooks", json={"url": f"{URL}/other"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "url"),
        ({"url": ""}, "url"),
        ({"url": "https://user:word@hooks.example.com/"}, "url"),
        ({"url": "ftp://hooks.example.com/"}, "url"),
        ({"url": "https://169.254.169.254/"}, "url"),
        ({"url": "https://h.example/" + "a" * 3000}, "url"),
        ({"url": URL, "event_types": ["Job Running"]}, "event_types.0"),
        ({"url": URL, "event_types": ["a"] * 51}, "event_types"),
        ({"url": URL, "secret": "mine"}, "secret"),
    ],
)
def test_a_bad_registration_names_the_field_and_writes_nothing(
    client: TestClient, body: dict[str, Any], field: str
) -> None:
    answer = client.post("/v1/webhooks", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field
    assert "word" not in answer.text
    assert client.get("/v1/webhooks").json()["items"] == []


@pytest.mark.parametrize(
    ("wanted", "remedy"), [("job.runing", "Did you mean 'job.running'?"), ("jobs.*", "Did you mean 'job.*'?")]
)
def test_an_unknown_event_type_is_refused_with_the_nearest(client: TestClient, wanted: str, remedy: str) -> None:
    answer = client.post("/v1/webhooks", json={"url": URL, "event_types": ["budget.*", wanted]})
    (error,) = answer.json()["errors"]
    assert (answer.status_code, error["field"], error["remedy"]) == (422, "event_types.1", remedy)
    assert wanted in error["message"]
    assert client.get("/v1/webhooks").json()["items"] == []


def test_plain_http_and_private_addresses_need_the_setting(client: TestClient) -> None:
    context: Context = client.app.state.context  # type: ignore[attr-defined]
    strict = context.settings.model_copy(update={"allow_private_webhooks": False})
    client.app.state.context = replace(context, settings=strict)  # type: ignore[attr-defined]
    for url in ("http://hooks.example.com/", "https://127.0.0.1/", "https://10.0.0.1/", "https://[::1]/"):
        assert client.post("/v1/webhooks", json={"url": url}).status_code == 422
    assert client.post("/v1/webhooks", json={"url": URL}).status_code == 201


def test_a_project_has_a_bounded_number(client: TestClient) -> None:
    for _ in range(20):
        create(client)
    answer = client.post("/v1/webhooks", json={"url": URL})
    assert (answer.status_code, answer.json()["code"]) == (409, "too_many_webhooks")


def test_a_test_event_goes_to_its_webhook_alone_and_shows_what_came_of_it(client: TestClient, context: Context) -> None:
    with run_receiver(lambda _request: (202, {}, b"thanks\x00\x1b")) as receiver:
        made, other = create(client, url=receiver.url, event_types=["job.*"]), create(client, url=receiver.url)
        assert client.post(f"/v1/webhooks/{made['id']}/test").status_code == 202
        send_all(context)
        assert len(receiver.received) == 1
        (delivery,) = client.get(f"/v1/webhooks/{made['id']}/deliveries").json()["items"]
        assert (delivery["event_type"], delivery["state"], delivery["tries"]) == ("webhook.test", "delivered", 1)
        assert delivery["response_status"] == 202
        assert delivery["response_excerpt"] == "thanks��"
        assert delivery["message_id"] == receiver.received[0].headers["webhook-id"]
        assert client.get(f"/v1/webhooks/{other['id']}/deliveries").json()["items"] == []


def test_a_delivery_is_replayed_under_its_id(client: TestClient, context: Context) -> None:
    with run_receiver() as receiver:
        made = create(client, url=receiver.url)
        client.post(f"/v1/webhooks/{made['id']}/test")
        send_all(context)
        (delivery,) = client.get(f"/v1/webhooks/{made['id']}/deliveries?state=delivered").json()["items"]
        replay = f"/v1/webhooks/{made['id']}/deliveries/{delivery['id']}/replay"
        answer = client.post(replay)
        assert (answer.status_code, answer.json()["state"], answer.json()["tries"]) == (202, "pending", 0)
        send_all(context)
        first, second = receiver.received
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        assert client.post(f"/v1/webhooks/{made['id']}/deliveries/whd-none/replay").status_code == 404


def test_a_disabled_webhook_gets_nothing_until_it_is_enabled(client: TestClient, context: Context) -> None:
    with run_receiver() as receiver:
        made = create(client, url=receiver.url)
        client.post(f"/v1/webhooks/{made['id']}/test")
        relay_events(context)
        shown = client.post(f"/v1/webhooks/{made['id']}/disable").json()
        assert (shown["is_enabled"], shown["disabled_reason"]) == (False, "disabled by a user")
        assert client.post(f"/v1/webhooks/{made['id']}/disable").json() == shown
        assert client.post(f"/v1/webhooks/{made['id']}/test").status_code == 409
        send_all(context)
        assert receiver.received == []
        assert client.post(f"/v1/webhooks/{made['id']}/enable").json()["is_enabled"]
        send_all(context)
        assert len(receiver.received) == 1


def test_a_rotation_shows_a_new_secret_once(client: TestClient) -> None:
    made = create(client)
    rotated = client.post(f"/v1/webhooks/{made['id']}/rotate-secret")
    assert rotated.status_code == 200
    assert rotated.json()["secret"].startswith("whsec_")
    assert rotated.json()["secret"] != made["secret"]


def test_deliveries_come_in_pages_newest_first(client: TestClient, context: Context) -> None:
    made = create(client)
    project_id = client.get("/v1/me").json()["project_id"]
    with session_scope(context.sessions) as session:
        for _ in range(5):
            emit(session, project_id=project_id, job_id=None, kind="job.queued", at=context.clock())
    relay_events(context)
    path, seen = f"/v1/webhooks/{made['id']}/deliveries?limit=2", []
    page = client.get(path).json()
    while True:
        seen += [item["id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        page = client.get(f"{path}&cursor={page['next_cursor']}").json()
    assert len(seen) == len(set(seen)) == 5
    assert seen == sorted(seen, reverse=True)


def test_a_deleted_webhook_takes_its_deliveries_along(client: TestClient, context: Context) -> None:
    made = create(client)
    client.post(f"/v1/webhooks/{made['id']}/test")
    relay_events(context)
    assert client.delete(f"/v1/webhooks/{made['id']}").status_code == 204
    assert client.get(f"/v1/webhooks/{made['id']}").status_code == 404
    with session_scope(context.sessions, is_reader=True) as session:
        assert session.scalar(select(func.count()).select_from(WebhookDelivery)) == 0


def test_another_projects_webhook_is_not_there(client: TestClient) -> None:
    made = create(client)
    other_key = client.post("/v1/projects", json={"name": "other"}).json()["key"]["secret"]
    headers = {"Authorization": f"Bearer {other_key}"}
    base = f"/v1/webhooks/{made['id']}"
    assert client.get("/v1/webhooks", headers=headers).json()["items"] == []
    for method, path in (
        ("GET", base),
        ("DELETE", base),
        ("POST", f"{base}/test"),
        ("POST", f"{base}/enable"),
        ("POST", f"{base}/disable"),
        ("POST", f"{base}/rotate-secret"),
        ("GET", f"{base}/deliveries"),
        ("POST", f"{base}/deliveries/whd-x/replay"),
    ):
        assert client.request(method, path, headers=headers).status_code == 404


def test_a_viewer_may_look_and_not_touch(client: TestClient) -> None:
    made = create(client)
    viewer = client.post("/v1/keys", json={"name": "v", "role": "viewer"}).json()["secret"]
    headers = {"Authorization": f"Bearer {viewer}"}
    assert client.get(f"/v1/webhooks/{made['id']}", headers=headers).status_code == 200
    assert client.post("/v1/webhooks", json={"url": URL}, headers=headers).status_code == 403
    assert client.delete(f"/v1/webhooks/{made['id']}", headers=headers).status_code == 403
