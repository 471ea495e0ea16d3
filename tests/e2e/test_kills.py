"""kill -9 of each process in the middle of a run, with two workers, two beats and PostgreSQL: training goes on.

Every test ends with the same proof: one attempt, one process of the user's, each step computed once, and a ledger whose
windows follow each other without gap or overlap from the launch to the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import redis
from sqlalchemy import func, select

from service.client.errors import ClientError
from service.db.models import Attempt, LedgerEntry
from service.db.session import make_session_factory
from service.ledger.service import COMPUTE
from tests.e2e.postgres import MortalPostgres, run_mortal_postgres
from tests.e2e.processes import wait_until
from tests.e2e.runs import Run, submit
from tests.e2e.stack import Stack, run_stack

STEPS = 90
STEP_SECONDS = 0.1


@dataclass(frozen=True)
class Production:
    """The production shape: everything twice that may be there twice."""

    stack: Stack
    postgres: MortalPostgres


@pytest.fixture(scope="module")
def shared_production() -> Iterator[Production]:
    with (
        run_mortal_postgres() as postgres,
        run_stack(database_url=postgres.url, num_workers=2, num_beats=2) as stack,
    ):
        yield Production(stack, postgres)


@pytest.fixture
def production(shared_production: Production) -> Production:
    shared_production.stack.heal()
    return shared_production


def start_run(production: Production, steps: int = STEPS) -> Run:
    run = submit(production.stack, steps=steps, step_seconds=STEP_SECONDS)
    run.reach("running")
    run.step_past(10)
    return run


def assert_undisturbed(run: Run, steps: int = STEPS) -> None:
    job = run.succeed(steps)
    run.never_interrupted(steps)
    assert (job.preemption_count, job.fault_count) == (0, 0)
    assert_ledger_is_whole(run)


def assert_ledger_is_whole(run: Run) -> None:
    """The windows cover the attempt's whole life, each second once. (That they join, `check_promises` has seen.)"""
    with make_session_factory(run.stack.engine)() as session:
        attempt = session.scalars(select(Attempt).where(Attempt.job_id == run.id)).one()
        mine = (LedgerEntry.attempt_id == attempt.id, LedgerEntry.category == COMPUTE)
        start, end = session.execute(
            select(func.min(LedgerEntry.window_start), func.max(LedgerEntry.window_end)).where(*mine)
        ).one()
        assert attempt.launched_at is not None
        assert attempt.gone_at is not None
        assert start == attempt.launched_at.replace(microsecond=0)
        assert end >= attempt.gone_at


def test_the_api_is_killed_and_away_for_longer_than_a_silence_that_counts(production: Production) -> None:
    """The workers look on all the while, and do not blame the nodes for what nobody could hear."""
    run = start_run(production, steps=190)
    production.stack.kill("api")
    run.step_past(165)
    production.stack.restart("api")
    assert_undisturbed(run, steps=190)


def test_both_workers_are_killed_one_after_the_other(production: Production) -> None:
    """The one that is left carries on; a claim that died with its worker is over within a minute."""
    run = start_run(production)
    production.stack.kill("worker-0")
    run.step_past(40)
    production.stack.restart("worker-0")
    production.stack.kill("worker-1")
    assert_undisturbed(run)


def test_the_broker_is_killed_and_stays_away_while_a_job_ends_and_another_is_submitted(
    production: Production,
) -> None:
    """Nothing but latency: the API accepts, grants are renewed, and the sweep picks up what no message told."""
    run = start_run(production)
    production.stack.kill("broker")
    accepted = submit(production.stack, steps=10)
    wait_until(lambda: run.steps()[-1] == STEPS, "the last step without a broker")
    assert accepted.job().status == "queued"
    production.stack.restart("broker")
    assert_undisturbed(run)
    accepted.succeed(10)
    assert accepted.fences() == [1]


def test_the_broker_loses_all_that_it_had(production: Production) -> None:
    run = start_run(production)
    with redis.Redis(unix_socket_path=str(production.stack.folder / "valkey.sock")) as broker:
        broker.flushall()
    assert_undisturbed(run)


def test_a_beat_is_killed_and_the_other_goes_on(production: Production) -> None:
    run = start_run(production)
    production.stack.kill("beat-0")
    run.step_past(40)
    production.stack.restart("beat-0")
    production.stack.kill("beat-1")
    assert_undisturbed(run)


def test_the_database_is_killed_for_a_while(production: Production) -> None:
    """Nodes train on within their grants, and no loss is seen where none was."""
    run = start_run(production)
    production.postgres.kill()
    with pytest.raises(ClientError):
        production.stack.http.post(f"/v1/jobs/{run.id}/pause")
    run.step_past(60)
    production.postgres.start()
    assert_undisturbed(run)


def test_everything_but_the_node_is_killed_at_once(production: Production) -> None:
    run = start_run(production)
    names = ("beat-0", "beat-1", "worker-0", "worker-1", "api", "broker", "cloud")
    production.stack.kill(*names)
    production.postgres.kill()
    run.step_past(40)
    production.postgres.start()
    production.stack.restart(*names)
    assert_undisturbed(run)
