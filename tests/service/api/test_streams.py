"""Server-sent events of a real server: in order, resumed by Last-Event-ID, ended politely."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from service.context import Context
from service.db.models import LogLineRow
from service.settings import Settings
from tests.service.api.server import Server, run_server
from tests.service.api.stand import Stand, at


@pytest.fixture
def server(settings: Settings, key: str) -> Iterator[tuple[Server, httpx.Client]]:
    headers = {"Authorization": f"Bearer {key}"}
    with (
        run_server(settings) as running,
        httpx.Client(base_url=running.url, headers=headers, timeout=20, trust_env=False) as client,
    ):
        yield running, client


def messages(answer: httpx.Response) -> Iterator[tuple[int, str, Any]]:
    """(id, event, data) of each message."""
    fields: dict[str, str] = {}
    for line in answer.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            yield int(fields["id"]), fields["event"], json.loads(fields["data"])
            fields = {}


def test_events_are_streamed_as_they_commit_and_resumed(
    server: tuple[Server, httpx.Client], spec: dict[str, Any]
) -> None:
    _, client = server
    job_id = client.post("/v1/jobs", json=spec).json()["id"]
    path = f"/v1/jobs/{job_id}/events/stream"
    with client.stream("GET", path) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        stream = messages(answer)
        first = next(stream)
        assert (first[1], first[2]["job_id"]) == ("job.queued", job_id)
        client.post(f"/v1/jobs/{job_id}/pause")
        assert next(stream)[1] == "job.pause_requested"
    client.post(f"/v1/jobs/{job_id}/resume")
    with client.stream("GET", path, headers={"Last-Event-ID": str(first[0])}) as answer:
        stream = messages(answer)
        assert [next(stream)[1] for _ in range(2)] == ["job.pause_requested", "job.resume_requested"]


def test_the_projects_stream_begins_now(server: tuple[Server, httpx.Client], spec: dict[str, Any]) -> None:
    _, client = server
    client.post("/v1/jobs", json=spec)
    with client.stream("GET", "/v1/events/stream") as answer:
        later = client.post("/v1/jobs", json={**spec, "name": "later"}).json()["id"]
        assert next(messages(answer))[2]["job_id"] == later


def test_log_lines_are_streamed_once_each_even_when_ids_commit_late(
    server: tuple[Server, httpx.Client], spec: dict[str, Any], stand: Stand
) -> None:
    _, client = server
    job_id = client.post("/v1/jobs", json=spec).json()["id"]

    def line(number: int) -> LogLineRow:
        base = {"id": number, "job_id": job_id, "fence": 1, "node_rank": 0, "rank": 0, "stream": "stdout"}
        return LogLineRow(**base, at=at(number), text=f"line {number}")

    stand.add(line(1), line(2), line(5))
    with client.stream("GET", f"/v1/jobs/{job_id}/logs/stream", params={"tail": 2}) as answer:
        stream = messages(answer)
        assert [next(stream)[0] for _ in range(2)] == [2, 5]
        stand.add(line(4), line(6))
        assert [next(stream)[2]["text"] for _ in range(2)] == ["line 4", "line 6"]


@pytest.mark.parametrize("value", ["-1", "x", "99999999999999999999", "1.5"])
def test_a_bad_last_event_id_is_refused(client: Any, value: str) -> None:
    answer = client.get("/v1/events/stream", headers={"Last-Event-ID": value})
    assert answer.status_code == 422


def test_a_stopping_server_ends_its_streams(server: tuple[Server, httpx.Client], context: Context) -> None:
    del context
    running, client = server
    with client.stream("GET", "/v1/events/stream") as answer:
        lines = answer.iter_lines()
        assert next(lines) == "retry: 1000"
        running.process.send_signal(signal.SIGTERM)
        assert any("restarts" in line for line in lines)
    assert running.process.wait(15) in (0, -signal.SIGTERM)
