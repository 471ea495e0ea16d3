"""Crash loops, full budgets, thresholds seen by two (rows 31, 32, 33, 38)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from service.budgets.service import reserve, settle, top_up
from service.db.models import Budget, BudgetAlert
from service.db.session import run_in_transaction
from service.domain.money import to_nano
from service.domain.states import EndReason, JobStatus, StatusReason
from service.jobs.wishes import cancel_job
from tests.model.workers import Worker
from tests.world import PROJECT, World
from training.protocol.messages import ExitKind
from worker.billing.guard import guard


def usd(amount: int) -> int:
    return to_nano(Decimal(amount))


def fail_once(world: World, job_id: str) -> None:
    for node in world.live_nodes(job_id):
        world.finish(node, ExitKind.INFRASTRUCTURE)
    world.sweep()
    world.advance(5)


def test_row_31_a_crash_loop_ends_by_count(world: World) -> None:
    job_id = world.submit(cap_usd="1000", limits={"max_faults": 3})
    for _ in range(400):
        if world.job(job_id).status == JobStatus.FAILED:
            break
        fail_once(world, job_id)
    job = world.job(job_id)
    assert (job.status, job.end_reason) == (JobStatus.FAILED, EndReason.RECOVERY_LIMIT)
    assert len(world.attempts(job_id)) == 4
    assert not world.cloud.live_clusters()


def test_row_31_a_crash_loop_without_a_limit_ends_by_money(world: World) -> None:
    job_id = world.submit(cap_usd="6", limits={"max_faults": 1000})
    for _ in range(2000):
        if world.job(job_id).status == JobStatus.PAUSED:
            break
        fail_once(world, job_id)
        world.advance(200)
        world.accrue()
    job = world.job(job_id)
    assert (job.status, job.status_reason) == (JobStatus.PAUSED, StatusReason.BUDGET_EXHAUSTED)
    budget = world.budget(job_id)
    assert budget.spent_nano <= budget.cap_nano
    assert budget.reserved_nano == 0
    assert len(world.attempts(job_id)) > 2
    assert [one.data["threshold_percent"] for one in world.events("budget.threshold_reached")][-1] == 100


def test_row_32_of_a_hundred_admissions_of_three_dollars_thirty_three_fit_a_hundred(world: World) -> None:
    world.add_project_budget(usd(100))
    jobs = [world.submit() for _ in range(100)]

    def admit(job_id: str) -> bool:
        return run_in_transaction(
            world.context.sessions, lambda session: reserve(session, PROJECT, job_id, usd(3)), tries=50
        )

    with ThreadPoolExecutor(20) as pool:
        admitted = sum(pool.map(admit, jobs))
    assert admitted == 33
    budget = world.budget()
    assert budget.reserved_nano == usd(99)
    with world.transaction() as session:  # no attempt stands behind these reservations: give them back
        settle(session, PROJECT, jobs[0], spent_nano=0, released_nano=budget.reserved_nano, now=world.clock.now)


def test_row_32_the_tightest_of_several_budgets_rules_and_a_refusal_reserves_nothing(world: World) -> None:
    world.add_project_budget(usd(10))
    job_id = world.submit(cap_usd="2")
    with world.transaction() as session:
        assert not reserve(session, PROJECT, job_id, usd(3))
    assert (world.budget().reserved_nano, world.budget(job_id).reserved_nano) == (0, 0)


def run_into_the_cap(world: World, job_id: str) -> None:
    for _ in range(400):
        world.sweep()
        world.accrue()
        guard(world.context)
        world.check()
        if world.job(job_id).status == JobStatus.PAUSED:
            return
        for node in world.live_nodes(job_id):
            world.beat(node)
            node.step += node.exit is None
        world.advance(45)
    raise AssertionError(f"{world.job(job_id).status} after 400 rounds")


@pytest.mark.parametrize("is_stubborn", [False, True])
def test_row_33_a_budget_reached_mid_run_drains_and_keeps_the_cap(world: World, is_stubborn: bool) -> None:
    """A node that does not obey is ended by the drain's bound; the money for that was held all along."""
    for offer in world.cloud.list_offers():
        world.cloud.set_price(offer.id, offer.on_demand_hourly_nano)  # the dearest that a reservation allows for
    job_id, (node,) = world.start(cap_usd="7.00", resources={"market": "on-demand"})
    if is_stubborn:
        world.drain_node = lambda _node: None  # type: ignore[method-assign]
    run_into_the_cap(world, job_id)
    budget, job = world.budget(job_id), world.job(job_id)
    assert (job.status_reason, job.has_budget_hold) == (StatusReason.BUDGET_EXHAUSTED, True)
    assert budget.spent_nano <= budget.cap_nano
    assert budget.reserved_nano == 0
    assert budget.spent_nano > budget.cap_nano // 2, "it used what it had"
    assert not world.cloud.live_clusters()
    assert not world.events("budget.exceeded")
    stops = [one for one in world.events("budget.threshold_reached") if one.data["threshold_percent"] == 100]
    assert len(stops) == 1
    if is_stubborn:
        return
    assert job.checkpoint_step == node.step, "drained to a checkpoint"
    with world.transaction() as session:
        top_up(session, budget.id, usd(20), now=world.clock.now)
    world.run(job_id, until=lambda: bool(world.live_nodes(job_id)))
    assert world.live_nodes(job_id)[0].spec.candidates[0].step == job.checkpoint_step, "no step is repeated"


def test_row_33_an_excess_past_the_teardown_bound_is_counted_and_alarmed_once(world: World) -> None:
    for offer in world.cloud.list_offers():
        world.cloud.set_price(offer.id, offer.on_demand_hourly_nano)
    job_id, (node,) = world.start(cap_usd="5.60", resources={"market": "on-demand"})
    world.drain_node = lambda _node: None  # type: ignore[method-assign]
    world.power_off = lambda _node: None  # type: ignore[method-assign]
    world.cloud.lie_about_terminations(10_000)
    for _ in range(100):
        world.sweep()
        world.accrue()
        guard(world.context)
        world.check()
        if world.events("budget.exceeded"):
            break
        world.beat(node)
        world.advance(30)
    guard(world.context)
    (alarm,) = world.events("budget.exceeded")
    assert alarm.data["cap_usd"] == "5.6"
    assert world.job(job_id).status != JobStatus.PAUSED, "an unconfirmed termination keeps the job where it is"
    assert world.events("attempt.termination_unconfirmed", job_id)


def test_row_33_a_top_up_between_look_and_hold_is_not_overtaken(world: World) -> None:
    """The job was found too poor, then its user paid; the hold that was about to be written must not come after that."""
    job_id = world.submit(cap_usd="0.5")
    worker = Worker(world.context, world.cloud)
    worker.stall(job_id, 2)
    assert worker.is_stalled
    with world.transaction() as session:
        top_up(session, world.budget(job_id).id, usd(50), now=world.clock.now)
    worker.resume()
    world.drain()
    assert world.job(job_id).status == JobStatus.SUCCEEDED


def test_row_33_money_that_another_job_only_holds_stops_nobody(world: World) -> None:
    """A renewal refused for money that may come free is no budget stop: the node goes on within its grant, and asks again."""
    for offer in world.cloud.list_offers():
        world.cloud.set_price(offer.id, offer.on_demand_hourly_nano)
    budget_id = world.add_project_budget(usd(1000))
    large, _ = world.start(num_nodes=4, resources={"market": "on-demand"})
    small, (node,) = world.start(resources={"market": "on-demand"})
    with world.transaction() as session:
        budget = session.get_one(Budget, budget_id)
        top_up(session, budget_id, budget.spent_nano + budget.reserved_nano - budget.cap_nano, now=world.clock.now)
    granted = world.attempts(small)[0].grant_until
    terms = world.context.settings.terms
    while granted - world.clock.now > terms.grant / 2:
        world.beat(node)
        world.accrue()
        world.advance(20)
    reply = world.beat(node)
    assert reply is not None
    assert reply.commands == ()
    assert world.attempts(small)[0].grant_until == granted, "there is no money for more now"
    assert not world.job(small).has_budget_hold

    world.wish(cancel_job, large, is_now=True)
    world.run(large, until=lambda: world.job(large).status == JobStatus.CANCELLED)
    world.beat(node)
    assert world.attempts(small)[0].grant_until > granted, "what the other held came free"
    world.drain()
    assert world.job(small).status == JobStatus.SUCCEEDED
    assert len(world.attempts(small)) == 1


def test_row_38_a_threshold_crossed_by_two_workers_is_told_once(world: World) -> None:
    world.add_project_budget(usd(10))
    jobs = [world.submit() for _ in range(16)]

    def spend(job_id: str) -> None:
        def enter(session: Session) -> None:
            settle(session, PROJECT, job_id, spent_nano=usd(1), released_nano=0, now=world.clock.now)

        run_in_transaction(world.context.sessions, enter, tries=50)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(spend, jobs))
        list(pool.map(lambda _: guard(world.context), range(8)))
    told = [one.data["threshold_percent"] for one in world.events("budget.threshold_reached")]
    assert sorted(told) == [50, 80, 100]
    assert len(world.events("budget.exceeded")) == 1
    with world.transaction(is_reader=True) as session:
        assert sorted(session.scalars(select(BudgetAlert.threshold_percent))) == [50, 80, 100, 101]
    with world.transaction() as session:  # no ledger entry stands behind this spending
        settle(session, PROJECT, jobs[0], spent_nano=-usd(16), released_nano=0, now=world.clock.now)
