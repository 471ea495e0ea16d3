"""A claim is prolonged while its worker works, and not a moment longer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError
from sqlalchemy import update

from service.context import Context
from service.db.claims import Claim, claim_job
from service.db.models import Job, Project
from service.db.session import session_scope
from service.settings import Settings
from worker.reconcile import hold
from worker.reconcile.hold import keep_claim

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def claim(context: Context, monkeypatch: pytest.MonkeyPatch) -> Claim:
    monkeypatch.setattr(hold, "_PERIOD_SECONDS", 0.02)
    with session_scope(context.sessions) as session:
        session.add(Project(id="prj-1", name="lab", created_at=NOW))
        session.flush()
        job = Job(id="job-1", project_id="prj-1", name="run", spec={}, status="queued", num_nodes=1, created_at=NOW)
        job.due_at = NOW
        session.add(job)
    with session_scope(context.sessions) as session:
        claim = claim_job(session, "job-1", now=NOW)
    assert claim is not None
    return claim


def claimed_until(context: Context) -> datetime:
    with session_scope(context.sessions, is_reader=True) as session:
        found = session.get_one(Job, "job-1").claimed_until
    assert found is not None
    return found


def wait_for(condition: Callable[[], bool]) -> bool:
    """Bounded polling of another thread's work."""
    pause = threading.Event()
    return any(condition() or pause.wait(0.02) for _ in range(500))


def test_the_claim_moves_on_while_the_block_runs_and_stays_after_it(context: Context, claim: Claim) -> None:
    first = claimed_until(context)
    with keep_claim(context, claim):
        assert wait_for(lambda: claimed_until(context) > first + timedelta(milliseconds=10))
    last = claimed_until(context)
    threading.Event().wait(0.1)
    assert claimed_until(context) == last


def test_a_claim_that_another_worker_took_is_left_alone(context: Context, claim: Claim) -> None:
    with session_scope(context.sessions) as session:
        session.execute(update(Job).values(claim_token="another", claimed_until=NOW))  # noqa: S106
    with keep_claim(context, claim):
        assert wait_for(lambda: not any(thread.name == "claim" for thread in threading.enumerate()))
    assert claimed_until(context) == NOW


def test_a_silence_shorter_than_our_own_gaps_is_refused() -> None:
    with pytest.raises(ValidationError, match="silence must be longer than 10 s"):
        Settings(silence=timedelta(seconds=10))
