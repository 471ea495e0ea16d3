"""Bad input: a 4xx problem that names the field, nothing written, nothing echoed, memory bounded (faults 40, 41, 42)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
BASE: dict[str, Any] = {"name": "a", "run": "x", "budget": {"cap_usd": "1"}}


def assert_nothing_written(client: TestClient) -> None:
    assert client.get("/v1/jobs").json()["items"] == []
    assert client.get("/v1/budgets").json()["items"] == []
    assert client.get("/v1/events").json()["items"] == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"bugdet": {}}, "bugdet"),
        ({"resources": {"num_nodes": 10_000}}, "resources.num_nodes"),
        ({"resources": {"num_nodes": "many"}}, "resources.num_nodes"),
        ({"name": "../../etc/passwd"}, "name"),
        ({"name": "/abs"}, "name"),
        ({"name": "a\0b"}, "name"),
        ({"env": {"A": "x\0y"}}, "env.A"),
        ({"outputs": ["../secret"]}, "outputs.0"),
        ({"outputs": ["/etc/passwd"]}, "outputs.0"),
        ({"budget": {"cap_usd": "-5"}}, "budget.cap_usd"),
        ({"budget": {"cap_usd": "NaN"}}, "budget.cap_usd"),
        ({"budget": {"cap_usd": "Infinity"}}, "budget.cap_usd"),
        ({"budget": {"cap_usd": 0}}, "budget.cap_usd"),
        ({"budget": {"cap_usd": "0.0000000001"}}, "budget.cap_usd"),
        ({"workdir": "../x"}, "workdir"),
        ({"workdir": "a" * 64}, "workdir"),
        ({"deadline": "2020-01-01T00:00:00Z"}, "deadline"),
        ({"deadline": "2030-01-01T00:00:00"}, "deadline"),
        ({"secrets": {"GODWIT_X": "hunter2"}}, "body"),
        ({"secrets": {"A": ["hunter2"]}}, "secrets.A"),
        ({"run": None}, "body"),
    ],
)
def test_a_bad_spec_names_the_field_and_writes_nothing(client: TestClient, change: dict[str, Any], field: str) -> None:
    answer = client.post("/v1/jobs", json={**BASE, **change})
    problem = answer.json()
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert [error["field"] for error in problem["errors"]] == [field]
    assert "hunter2" not in answer.text
    assert_nothing_written(client)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"name": NaN}',
        b'{"name": "a", "budget": {"cap_usd": Infinity}}',
        b'{"name": "a", "train": {"steps": 1e999}}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'["' + b'\\"' * 400_000,
        b'{"name": "a", "name": "b"}',
        b'{"name": "\\ud800"}',
        b'{"name": "\\u0000"}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b"\xff\xfe",
        b"not json",
        b"",
        b"null",
        b"[1]",
    ],
    ids=range(15),
)
def test_what_is_not_plain_json_is_422(client: TestClient, raw: bytes) -> None:
    answer = client.post("/v1/jobs", content=raw, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["code"] in ("invalid", "invalid_json")
    assert_nothing_written(client)


def test_a_body_over_the_limit_is_413_by_its_declared_length(client: TestClient) -> None:
    answer = client.post("/v1/jobs", content=b" " * 2_000_000, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert answer.headers["x-request-id"]


@pytest.mark.parametrize("path", ["/v1/jobs/%00", "/v1/jobs?name=%00", "/v1/jobs/a%00b/logs", "/v1/keys/%00"])
def test_nul_in_an_address_is_refused(client: TestClient, path: str) -> None:
    answer = client.get(path) if "keys" not in path else client.delete(path)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid")


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/jobs?limit=0", "limit"),
        ("/v1/jobs?limit=1000000", "limit"),
        ("/v1/jobs?status=sleeping", "status.0"),
        ("/v1/jobs/x/metrics?max_points=1", "max_points"),
        ("/v1/jobs/x/metrics?names=$.a", "names.0"),
        ("/v1/jobs/x/logs?tail=-1", "tail"),
        ("/v1/jobs/x/logs?rank=99999999999999999999", "rank"),
    ],
)
def test_a_bad_query_names_the_parameter(client: TestClient, path: str, field: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


def test_every_error_is_a_problem(client: TestClient) -> None:
    for answer in (
        client.get("/v1/nothing"),
        client.delete("/v1/jobs"),
        client.get("/v1/jobs/job-none"),
        client.get("/v1/me", headers={"Authorization": ""}),
    ):
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert problem["status"] == answer.status_code
        assert problem["type"] == f"urn:godwit:problem:{problem['code']}"
        assert problem["instance"] == f"urn:godwit:request:{answer.headers['x-request-id']}"
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.delete("/v1/jobs").headers["allow"]


def test_a_very_long_list_of_errors_is_cut(client: TestClient) -> None:
    answer = client.post(
        "/v1/jobs",
        content=json.dumps({**BASE, **{f"x{n}": 1 for n in range(500)}}).encode(),
        headers={"content-type": "application/json"},
    )
    assert answer.status_code == 422
    assert len(answer.json()["errors"]) == 50
