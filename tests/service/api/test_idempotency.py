"""Creates under an Idempotency-Key: once, whoever repeats and however."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select

from service.api.idempotency import forget_old_requests
from service.context import Context
from service.db.models import ApiKey, Budget, Event, IdempotentRequest, Job
from service.db.session import session_scope

KEY = {"Idempotency-Key": "a-key-of-mine"}


def count(context: Context, model: Any) -> int:
    with session_scope(context.sessions) as session:
        return session.scalar(select(func.count()).select_from(model)) or 0


def test_a_repeat_gets_the_first_answer(client: TestClient, spec: dict[str, Any], context: Context) -> None:
    first = client.post("/v1/jobs", json=spec, headers=KEY)
    again = client.post("/v1/jobs", json=spec, headers=KEY)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert (count(context, Job), count(context, Event), count(context, Budget)) == (1, 1, 1)


def test_another_body_or_path_is_refused(client: TestClient, spec: dict[str, Any], context: Context) -> None:
    client.post("/v1/jobs", json=spec, headers=KEY)
    other = client.post("/v1/jobs", json={**spec, "name": "other"}, headers=KEY)
    elsewhere = client.post("/v1/keys", json={"name": "x"}, headers=KEY)
    for answer in (other, elsewhere):
        assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")
    assert (count(context, Job), count(context, ApiKey)) == (1, 1)


def test_concurrent_repeats_create_once(client: TestClient, spec: dict[str, Any], context: Context) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.post("/v1/jobs", json=spec, headers=KEY), range(16)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert (count(context, Job), count(context, Event)) == (1, 1)


def test_a_refused_create_leaves_its_key_free(client: TestClient, spec: dict[str, Any], context: Context) -> None:
    bad = {**spec}
    del bad["budget"]
    assert client.post("/v1/jobs", json=bad, headers=KEY).status_code == 422
    assert count(context, IdempotentRequest) == 0
    assert client.post("/v1/jobs", json=spec, headers=KEY).status_code == 201


def test_a_repeat_shows_a_new_keys_secret_again_and_it_is_kept_sealed(client: TestClient, context: Context) -> None:
    first = client.post("/v1/keys", json={"name": "x"}, headers=KEY).json()
    assert client.post("/v1/keys", json={"name": "x"}, headers=KEY).json() == first
    with session_scope(context.sessions) as session:
        assert first["secret"] not in str(session.scalars(select(IdempotentRequest)).one().body)


def test_another_projects_same_key_is_another_key(client: TestClient, spec: dict[str, Any]) -> None:
    first = client.post("/v1/jobs", json=spec, headers=KEY).json()
    foreign = client.post("/v1/projects", json={"name": "other"}).json()["key"]["secret"]
    other = client.post("/v1/jobs", json=spec, headers={**KEY, "Authorization": f"Bearer {foreign}"}).json()
    assert other["id"] != first["id"]


@pytest.mark.parametrize("value", ["", "a b", "x" * 256])
def test_a_malformed_key_is_refused(client: TestClient, spec: dict[str, Any], value: str) -> None:
    answer = client.post("/v1/jobs", json=spec, headers={"Idempotency-Key": value})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].lower() == "idempotency-key"


def test_old_answers_are_forgotten(client: TestClient, spec: dict[str, Any], context: Context) -> None:
    client.post("/v1/jobs", json=spec, headers=KEY)
    with session_scope(context.sessions) as session:
        assert forget_old_requests(session, context.clock() + timedelta(days=2)) == 0
        assert forget_old_requests(session, context.clock() + timedelta(days=4)) == 1
