"""/livez, /readyz, /metrics."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.context import Context
from service.db.models import Watch
from tests.service.api.stand import Stand


def test_ready_tells_the_sweeps_age(client: TestClient, stand: Stand, context: Context) -> None:
    assert client.get("/livez").json() == {"status": "live"}
    assert client.get("/readyz").json()["sweep_age_seconds"] is None
    swept_at = context.clock() - timedelta(seconds=100)
    stand.add(Watch(name="sweep", last_at=swept_at, returned_at=swept_at))
    ready = client.get("/readyz").json()
    assert (ready["status"], ready["database"]) == ("ready", "ok")
    assert ready["sweep_age_seconds"] >= 100


def test_metrics_count_jobs_by_status_and_name_none(client: TestClient, spec: dict[str, Any]) -> None:
    job_id = client.post("/v1/jobs", json=spec).json()["id"]
    client.get(f"/v1/jobs/{job_id}")
    text = client.get("/metrics").text
    assert 'godwit_jobs{status="queued"} 1.0' in text
    assert 'route="/v1/jobs/{job_id}"' in text
    assert job_id not in text


def test_the_access_log_holds_no_secret(
    client: TestClient, key: str, spec: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client.post("/v1/jobs?note=hunter2", json={**spec, "secrets": {"A": "hunter2"}})
    client.post("/v1/jobs", content=b'{"hunter2', headers={"content-type": "application/json"})
    ours = "".join(str(record.msg) for record in caplog.records if not record.name.startswith("httpx"))
    assert "request_id" in ours
    assert "hunter2" not in ours
    assert key.rpartition("_")[2] not in ours


def test_a_request_keeps_the_id_that_its_caller_gave(client: TestClient) -> None:
    assert client.get("/livez", headers={"X-Request-Id": "my-request-1"}).headers["x-request-id"] == "my-request-1"
    assert client.get("/livez", headers={"X-Request-Id": "bad id\t"}).headers["x-request-id"] != "bad id\t"
