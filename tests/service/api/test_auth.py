"""Keys: wrong, expired and revoked ones open nothing, and no key opens another project."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.context import Context
from service.db.session import session_scope
from service.keys.service import create_first_key


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def make_key(client: TestClient, role: str, **more: Any) -> dict[str, Any]:
    answer = client.post("/v1/keys", json={"name": role, "role": role, **more})
    assert answer.status_code == 201
    return answer.json()


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer x", "Basic eDp5", "Bearer gdw_key_", "Bearer gdw_key-000000000000_aaaa", "Bearer gdn_a_b"],
)
def test_a_bad_key_is_401_and_says_how_to_send_one(client: TestClient, header: str) -> None:
    answer = client.get("/v1/me", headers={"Authorization": header})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["code"] == "unauthorized"
    assert "gdw_" in answer.json()["remedy"]


def test_a_right_id_with_a_wrong_secret_is_401(client: TestClient, key: str) -> None:
    assert client.get("/v1/me", headers=bearer(key[:-1] + ("a" if key[-1] != "a" else "b"))).status_code == 401
    assert client.get("/v1/me", headers=bearer(key)).json()["role"] == "admin"


def test_a_revoked_key_is_401_at_once(client: TestClient) -> None:
    made = make_key(client, "viewer")
    assert client.get("/v1/jobs", headers=bearer(made["secret"])).status_code == 200
    assert client.delete(f"/v1/keys/{made['id']}").json()["revoked_at"]
    assert client.get("/v1/jobs", headers=bearer(made["secret"])).status_code == 401
    assert client.delete(f"/v1/keys/{made['id']}").status_code == 200


def test_an_expired_key_is_401(client: TestClient, context: Context, app: FastAPI) -> None:
    soon = context.clock() + timedelta(hours=1)
    made = make_key(client, "viewer", expires_at=soon.isoformat())
    assert client.get("/v1/jobs", headers=bearer(made["secret"])).status_code == 200
    later = app.state.context
    object.__setattr__(later, "clock", lambda: soon + timedelta(seconds=1))
    assert client.get("/v1/jobs", headers=bearer(made["secret"])).status_code == 401


def test_an_expiry_in_the_past_is_refused(client: TestClient) -> None:
    answer = client.post("/v1/keys", json={"name": "a", "expires_at": datetime(2020, 1, 1, tzinfo=UTC).isoformat()})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "expires_at"


def test_roles_bound_what_a_key_may_do(client: TestClient, spec: dict[str, Any]) -> None:
    viewer, operator = (bearer(make_key(client, role)["secret"]) for role in ("viewer", "operator"))
    refused = client.post("/v1/jobs", json=spec, headers=viewer)
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert "operator" in refused.json()["remedy"]
    job = client.post("/v1/jobs", json=spec, headers=operator).json()
    assert client.get(f"/v1/jobs/{job['id']}", headers=viewer).status_code == 200
    assert client.post(f"/v1/jobs/{job['id']}/pause", headers=viewer).status_code == 403
    for headers in (viewer, operator):
        assert client.post("/v1/keys", json={"name": "x"}, headers=headers).status_code == 403
        assert client.get("/v1/keys", headers=headers).status_code == 403


def test_another_projects_objects_are_404(client: TestClient, spec: dict[str, Any]) -> None:
    job = client.post("/v1/jobs", json=spec).json()
    mine = client.get("/v1/keys").json()["items"][0]["id"]
    other = client.post("/v1/projects", json={"name": "other"}).json()
    foreign = bearer(other["key"]["secret"])
    paths = [f"/v1/jobs/{job['id']}{rest}" for rest in ("", "/events", "/attempts", "/logs", "/metrics", "/budget")]
    paths += [f"/v1/jobs/{job['id']}{rest}" for rest in ("/outputs", "/outputs/a", "/checkpoints", "/events/stream")]
    paths += [f"/v1/budgets/{job['budget_id']}", f"/v1/projects/{job['project_id']}"]
    for path in paths:
        assert client.get(path, headers=foreign).status_code == 404, path
    for verb in ("pause", "resume", "cancel", "retry", "checkpoint"):
        assert client.post(f"/v1/jobs/{job['id']}/{verb}", headers=foreign).status_code == 404
    assert client.delete(f"/v1/keys/{mine}", headers=foreign).status_code == 404
    assert client.get("/v1/jobs", headers=foreign).json()["items"] == []
    assert client.get("/v1/events", headers=foreign).json()["items"] == []
    assert client.get("/v1/me").status_code == 200


def test_the_secret_is_shown_once_and_only_its_hash_is_kept(client: TestClient, context: Context) -> None:
    made = make_key(client, "viewer")
    assert made["secret"] not in client.get("/v1/keys").text
    with session_scope(context.sessions) as session:
        rows = session.connection().exec_driver_sql("SELECT * FROM api_keys").all()
        stored = session.connection().exec_driver_sql("SELECT * FROM idempotent_requests").all()
    secret = made["secret"].rpartition("_")[2]
    assert secret not in str(rows) + str(stored)


def test_there_is_one_first_key(client: TestClient, context: Context) -> None:
    assert client.get("/v1/me").json()["project_name"] == "default"
    with session_scope(context.sessions) as session:
        assert create_first_key(session, now=context.clock()) is None


def test_too_many_requests_are_told_when_to_return(client: TestClient, app: FastAPI) -> None:
    answer = client.get("/v1/me")
    assert answer.headers["ratelimit-policy"] == '"key";q=6000;w=60'
    app.state.rate_limiter._limit = 2
    codes = [client.get("/v1/me").status_code for _ in range(3)]
    assert codes[-1] == 429
    assert int(client.get("/v1/me").headers["retry-after"]) >= 1
