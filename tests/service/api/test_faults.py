"""The API under faults: killed, its broker away, its database busy, gone or full."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psutil
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import func, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from service.app import create_app
from service.context import Context
from service.db.claims import due_job_ids
from service.db.models import Budget, Event, IdempotentRequest, Job
from service.db.session import session_scope
from service.settings import Settings
from service.wakeup import PAUSE_SECONDS, Waker
from tests.service.api.server import run_server, wait_for

KEY = {"Idempotency-Key": "the-same"}


def count_rows(context: Context) -> dict[str, int]:
    models = (Job, Event, Budget, IdempotentRequest)
    with session_scope(context.sessions, is_reader=True) as session:
        return {m.__tablename__: session.scalar(select(func.count()).select_from(m)) or 0 for m in models}


NOTHING = {"jobs": 0, "events": 0, "budgets": 0, "idempotent_requests": 0}
ONE = dict.fromkeys(NOTHING, 1)


@contextmanager
def blocked_commits(context: Context) -> Iterator[None]:
    """Holds what a submission needs just before its commit: the events' lock on PostgreSQL, the write lock on SQLite."""
    with context.sessions() as session:
        session.execute(text("SELECT 1"))
        if session.get_bind().dialect.name == "postgresql":
            session.execute(text("SELECT pg_advisory_xact_lock(7263901145)"))
        yield
        session.rollback()


def is_waiting(context: Context) -> bool:
    """Whether somebody waits for the lock on PostgreSQL; on SQLite a waiter cannot be seen."""
    with session_scope(context.sessions, is_reader=True) as session:
        if session.get_bind().dialect.name != "postgresql":
            return True
        waiting = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        return bool(session.scalar(waiting))


def test_killed_before_the_commit_there_is_no_job_and_a_repeat_makes_one(
    settings: Settings, key: str, context: Context, spec: dict[str, Any]
) -> None:
    """Fault 1."""
    headers = {"Authorization": f"Bearer {key}", **KEY}
    outcome: list[object] = []

    def submit(url: str) -> None:
        try:
            outcome.append(httpx.post(f"{url}/v1/jobs", json=spec, headers=headers, timeout=30, trust_env=False))
        except httpx.TransportError as error:
            outcome.append(error)

    with run_server(settings) as server:
        httpx.get(f"{server.url}/v1/me", headers=headers, trust_env=False)  # the key's first use is written now
        with blocked_commits(context):
            thread = threading.Thread(target=submit, args=(server.url,))
            thread.start()
            wait_for(lambda: _has_connection(server.process.pid))
            wait_for(lambda: is_waiting(context))
            server.kill()
            thread.join(30)
    assert isinstance(outcome[0], httpx.TransportError)
    assert count_rows(context) == NOTHING
    with run_server(settings) as server:
        for _ in range(2):
            submit(server.url)
    ids = {answer.json()["id"] for answer in outcome[1:] if isinstance(answer, httpx.Response)}
    assert len(ids) == 1
    assert count_rows(context) == ONE


def _has_connection(pid: int) -> bool:
    return any(c.status == psutil.CONN_ESTABLISHED for c in psutil.Process(pid).net_connections("tcp"))


def test_killed_after_the_commit_the_job_is_due_for_the_sweep(
    settings: Settings, key: str, context: Context, spec: dict[str, Any]
) -> None:
    """Fault 2, the API's half: the wake-up never leaves, and the row alone says that there is work."""
    headers = {"Authorization": f"Bearer {key}", **KEY}
    with run_server(settings, "tests.service.api.dying:make_app") as server:
        with pytest.raises(httpx.TransportError):
            httpx.post(f"{server.url}/v1/jobs", json=spec, headers=headers, timeout=30, trust_env=False)
        assert server.process.wait(10) == -signal.SIGKILL
    assert count_rows(context) == ONE
    with session_scope(context.sessions) as session:
        assert len(due_job_ids(session, now=context.clock())) == 1


def test_a_dead_broker_neither_fails_nor_holds_up_requests(
    settings: Settings, key: str, spec: dict[str, Any], context: Context
) -> None:
    """Fault 8. Nothing listens at the broker's address of these settings."""
    with TestClient(create_app(settings), headers={"Authorization": f"Bearer {key}"}) as client:
        for number in range(3):
            assert client.post("/v1/jobs", json={**spec, "name": f"job-{number}"}).status_code == 201
        assert client.get("/readyz").json()["broker"] == "away"
    assert count_rows(context)["jobs"] == 3


def test_after_a_failure_the_waker_is_quiet_for_a_while() -> None:
    now = [0.0]
    tries: list[str] = []

    class Producer:
        def send_task(self, _name: str, args: list[str], **_: object) -> None:
            tries.append(args[0])
            raise ConnectionError

    waker = Waker("redis://127.0.0.1:1/0", clock=lambda: now[0])
    waker._producer = Producer()  # type: ignore[assignment]
    for job_id in "ab":
        waker(job_id)
    now[0] = PAUSE_SECONDS
    waker("c")
    assert tries == ["a", "c"]


class SerializationFailure(Exception):
    sqlstate = "40001"


def failing(times: int) -> Callable[[], None]:
    """Loses a race as the database tells it."""
    left = [times]

    def fail() -> None:
        if left[0] > 0:
            left[0] -= 1
            raise OperationalError("COMMIT", {}, SerializationFailure())

    return fail


@pytest.mark.parametrize(("times", "status", "jobs"), [(1, 201, 1), (3, 201, 1), (99, 500, 0)])
def test_a_lost_race_is_run_again_within_bounds(
    client: TestClient, app: FastAPI, spec: dict[str, Any], context: Context, times: int, status: int, jobs: int
) -> None:
    """Fault 12, at the commit itself."""
    from sqlalchemy import event

    fail, factory = failing(times), app.state.context.sessions

    def note(session: Session, _context: object) -> None:
        session.info["has_job"] = any(isinstance(row, Job) for row in session.new) or session.info.get("has_job")

    event.listen(factory, "after_flush", note)
    event.listen(factory, "before_commit", lambda session: fail() if session.info.get("has_job") else None)
    answer = client.post("/v1/jobs", json=spec, headers=KEY)
    assert answer.status_code == status
    assert count_rows(context) == (ONE if jobs else NOTHING)


def test_concurrent_changes_of_one_job_all_end(client: TestClient, spec: dict[str, Any]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    path = f"/v1/jobs/{client.post('/v1/jobs', json=spec).json()['id']}"
    with ThreadPoolExecutor(6) as pool:
        verbs = ["pause", "resume"] * 10
        codes = {answer.status_code for answer in pool.map(lambda verb: client.post(f"{path}/{verb}"), verbs)}
    assert codes == {200}


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_full_disk_is_503_and_the_service_recovers(
    client: TestClient, app: FastAPI, spec: dict[str, Any], context: Context
) -> None:
    """Fault 13: SQLite is not given one more page."""
    from sqlalchemy import event

    engine = app.state.context.sessions.kw["bind"]
    limit = {"pages": 1}

    def bound(connection: Any, _record: Any) -> None:
        connection.execute(f"PRAGMA max_page_count={limit['pages']}").close()

    client.get("/v1/me")
    engine.dispose()
    event.listen(engine, "connect", bound)
    big = {**spec, "run": "x" * 60_000}
    answer = client.post("/v1/jobs", json=big, headers=KEY)
    assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
    assert answer.headers["retry-after"]
    assert client.get("/v1/jobs").json()["items"] == []
    limit["pages"] = 1_000_000
    engine.dispose()
    assert client.post("/v1/jobs", json=big, headers=KEY).status_code == 201
    assert count_rows(context) == ONE


def test_a_database_that_is_away_is_503_and_liveness_stays(key: str, settings: Settings) -> None:
    away = settings.model_copy(update={"database_url": "postgresql+psycopg://nobody@127.0.0.1:1/none"})
    with TestClient(
        create_app(away), headers={"Authorization": f"Bearer {key}"}, raise_server_exceptions=False
    ) as client:
        answer = client.get("/v1/jobs")
        assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
        assert "nobody" not in answer.text
        assert client.get("/livez").status_code == 200
        assert client.get("/readyz").status_code == 503
        assert client.get("/metrics").status_code == 200


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_gigabyte_is_stopped_as_it_arrives(settings: Settings, key: str) -> None:
    """Fault 40, at a real server, without a declared length."""

    def gigabyte() -> Iterator[bytes]:
        for _ in range(1024):
            yield bytes(1 << 20)

    headers = {"Authorization": f"Bearer {key}", "content-type": "application/json"}
    with run_server(settings) as server:
        process = psutil.Process(server.process.pid)
        before = process.memory_info().rss
        try:
            status = httpx.post(
                f"{server.url}/v1/jobs", content=gigabyte(), headers=headers, timeout=30, trust_env=False
            ).status_code
        except httpx.TransportError:
            status = 413  # the server hung up while the rest was still being sent
        grown = process.memory_info().rss - before
    assert status == 413
    assert grown < 64 << 20


def test_sigterm_lets_a_request_finish(settings: Settings, key: str, spec: dict[str, Any], context: Context) -> None:
    answers: list[httpx.Response] = []
    headers = {"Authorization": f"Bearer {key}"}
    with run_server(settings) as server:
        httpx.get(f"{server.url}/v1/me", headers=headers, trust_env=False)

        def submit() -> None:
            answers.append(httpx.post(f"{server.url}/v1/jobs", json=spec, headers=headers, timeout=30, trust_env=False))

        with blocked_commits(context):
            thread = threading.Thread(target=submit)
            thread.start()
            wait_for(lambda: _has_connection(server.process.pid))
            time.sleep(0.2)
            server.process.send_signal(signal.SIGTERM)
        thread.join(30)
        server.process.wait(20)
    assert [answer.status_code for answer in answers] == [201]
