"""The rules by which Hypothesis plays users, workers, nodes, the cloud and time against the shipped code."""

from __future__ import annotations

import random
import secrets
import shutil
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import select

from service import ids
from service.api.problems import Problem
from service.budgets.service import top_up
from service.checkpoints.service import Fenced
from service.db.models import Attempt, Budget, Checkpoint, Job
from service.db.session import run_in_transaction
from service.domain.states import JobStatus
from service.jobs.wishes import cancel_job, pause_job, resume_job, retry_job
from tests.invariants import check_fence_is_kept
from tests.model.workers import Worker
from tests.world import World
from training.protocol.messages import CorruptCheckpoint, ExitKind, Notice
from worker.billing.accrual import accrue_all
from worker.billing.guard import guard
from worker.pricing.refresh import refresh_quotes
from worker.provision.protocol import LaunchRefused, NoCapacity, ProviderUnavailable
from worker.sweep.orphans import sweep_orphans

MAX_JOBS = 3
picks = st.integers(0, 7)
crashes = st.none() | st.integers(1, 12)
caps = st.sampled_from([None, "4.0", "6.5", "9.75", "50"])
TIMES = st.sampled_from([0.4, 1, 3.7, 10, 31, 61, 130, 440, 1300])
FAULTS = [
    NoCapacity("none left"),
    ProviderUnavailable("503"),
    LaunchRefused("quota"),
]
steps_done = 0
"""Over all examples of this process."""


class GodwitMachine(RuleBasedStateMachine):
    template: Path

    def __init__(self) -> None:
        super().__init__()
        ids.secrets = random.Random(0)  # type: ignore[assignment] # noqa: S311 - the same ids in every replay
        self.folder = Path(tempfile.mkdtemp(prefix="gdw-model-"))
        shutil.copy(self.template, self.folder / "godwit.db")
        self.world = World(f"sqlite:///{self.folder / 'godwit.db'}", self.folder / "data")
        self.workers = [Worker(self.world.context, self.world.cloud) for _ in range(2)]
        self.jobs: list[str] = []
        self.latest: dict[str, int] = {}
        self.corrupted: dict[str, int] = {}
        self.world.add_project_budget(60 * 10**9)

    def pick(self, number: int) -> str:
        return self.jobs[number % len(self.jobs)]

    def has_jobs(self) -> bool:
        return bool(self.jobs)

    def has_nodes(self) -> bool:
        return bool(self.world.live_nodes())

    # ---- users ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.jobs) < MAX_JOBS)
    @rule(cap=caps, num_nodes=st.integers(1, 2))
    def submit(self, cap: str | None, num_nodes: int) -> None:
        limits = {"max_faults": 1}
        self.jobs.append(self.world.submit(cap_usd=cap, num_nodes=num_nodes, limits=limits))

    @precondition(has_jobs)
    @rule(number=picks, wish=st.sampled_from(["pause", "resume", "resume", "cancel", "cancel_now", "retry"]))
    def wish(self, number: int, wish: str) -> None:
        job_id = self.pick(number)
        try:
            if wish == "pause":
                self.world.wish(pause_job, job_id)
            elif wish == "resume":
                self.world.wish(resume_job, job_id)
            elif wish == "retry":
                self.world.wish(retry_job, job_id, {}, self.world.context.sealer)
            else:
                self.world.wish(cancel_job, job_id, is_now=wish == "cancel_now")
        except Problem as problem:
            if problem.status_code != 409:
                raise

    @rule(number=picks, amount=st.sampled_from([-(10**9), 5 * 10**8, 3 * 10**9]))
    def top_up(self, number: int, amount: int) -> None:
        with self.world.transaction(is_reader=True) as session:
            budgets = list(session.scalars(select(Budget.id).order_by(Budget.id)))
        try:
            with self.world.transaction() as session:
                top_up(session, budgets[number % len(budgets)], amount, now=self.world.clock.now)
        except ValueError:
            assert amount < 0

    # ---- workers ----------------------------------------------------------------------------------------------------

    @precondition(has_jobs)
    @rule(number=picks, worker=st.integers(0, 1), crash_at=crashes)
    def tick(self, number: int, worker: int, crash_at: int | None) -> None:
        if not self.workers[worker].is_stalled:
            self.workers[worker].tick(self.pick(number), crash_at)

    @precondition(has_jobs)
    @rule(number=picks, times=st.integers(2, 5))
    def tick_on(self, number: int, times: int) -> None:
        for _ in range(times):
            if not self.world.tick(self.pick(number)):
                break

    @precondition(has_jobs)
    @rule(number=picks, worker=st.integers(0, 1), stall_at=st.integers(2, 9))
    def stall(self, number: int, worker: int, stall_at: int) -> None:
        if not self.workers[worker].is_stalled:
            self.workers[worker].stall(self.pick(number), stall_at)

    @precondition(lambda self: any(worker.is_stalled for worker in self.workers))
    @rule(is_killed=st.booleans())
    def resume_stalled(self, is_killed: bool) -> None:
        next(worker for worker in self.workers if worker.is_stalled).resume(is_killed=is_killed)

    @rule()
    def expire_claims(self) -> None:
        self.world.expire_claims()

    @rule(crash_at=crashes, worker=st.integers(0, 1))
    def accrue(self, crash_at: int | None, worker: int) -> None:
        if not self.workers[worker].is_stalled:
            self.workers[worker].run(lambda context, _: accrue_all(context), crash_at)

    @rule(crash_at=crashes)
    def sweep_orphans(self, crash_at: int | None) -> None:
        if not self.workers[0].is_stalled:
            self.workers[0].run(sweep_orphans, crash_at)

    @rule()
    def guard(self) -> None:
        guard(self.world.context)

    # ---- nodes ------------------------------------------------------------------------------------------------------

    @precondition(has_nodes)
    @rule(number=picks, is_answer_lost=st.booleans(), steps=st.integers(0, 40))
    def beat(self, number: int, is_answer_lost: bool, steps: int) -> None:
        nodes = self.world.live_nodes()
        node = nodes[number % len(nodes)]
        if node.has_grant:
            node.step += steps
        self.world.beat(node, is_answer_lost=is_answer_lost)

    @precondition(has_nodes)
    @rule()
    def beat_all(self) -> None:
        for node in self.world.live_nodes():
            self.world.beat(node)

    @precondition(has_nodes)
    @rule(number=picks)
    def save(self, number: int) -> None:
        nodes = [node for node in self.world.live_nodes() if node.rank == 0 and node.has_grant]
        if nodes:
            self.world.save(nodes[number % len(nodes)])

    @precondition(has_nodes)
    @rule(number=picks, kind=st.sampled_from(ExitKind))
    def exit(self, number: int, kind: ExitKind) -> None:
        nodes = self.world.live_nodes()
        node = nodes[number % len(nodes)]
        if node.exit is None:
            self.world.finish(node, kind)

    @precondition(has_nodes)
    @rule(number=picks)
    def notice(self, number: int) -> None:
        nodes = self.world.live_nodes()
        node = nodes[number % len(nodes)]
        self.world.cloud.interrupt(node.cluster_name, node.rank, has_notice=True)
        node.notice = Notice(seen_at=self.world.clock.now)
        self.world.beat(node)

    @precondition(has_nodes)
    @rule(number=picks)
    def find_corrupt(self, number: int) -> None:
        nodes = [node for node in self.world.live_nodes() if node.spec.candidates]
        if not nodes:
            return
        node = nodes[number % len(nodes)]
        first = node.spec.candidates[0]
        node.corrupt = (CorruptCheckpoint(step=first.step, fence=first.fence, reason="sha256 differs"),)
        self.world.beat(node)

    @rule(number=st.integers(0, 200), back=st.integers(1, 4))
    def replay(self, number: int, back: int) -> None:
        """A heartbeat late, doubled, or of a fence that is long over. It never fails but by being fenced."""
        nodes = [node for node in self.world.nodes.values() if node.sent]
        if not nodes:
            return
        sent = nodes[number % len(nodes)].sent
        with suppress(Fenced):
            self.world.deliver(sent[max(0, len(sent) - back)])

    @rule(number=st.integers(0, 200))
    def commit_of_the_past(self, number: int) -> None:
        """Whoever was superseded or is gone cannot register, whatever it believes."""
        nodes = [node for node in self.world.nodes.values() if node.rank == 0]
        if not nodes:
            return
        node = nodes[number % len(nodes)]
        with self.world.transaction(is_reader=True) as session:
            attempt = session.get_one(Attempt, node.spec.attempt_id)
            is_over = attempt.fence < session.get_one(Job, attempt.job_id).fence or attempt.state == "gone"
        node.step += 1
        assert self.world.save(node) is not is_over

    # ---- the cloud and time -----------------------------------------------------------------------------------------

    @precondition(has_nodes)
    @rule(number=picks, is_whole=st.booleans())
    def preempt(self, number: int, is_whole: bool) -> None:
        nodes = self.world.live_nodes()
        node = nodes[number % len(nodes)]
        self.world.cloud.preempt(node.cluster_name, None if is_whole else [node.rank])

    @rule(
        fault=st.sampled_from(range(len(FAULTS))),
        verb=st.sampled_from(["launch", "launch", "observe", "terminate", "list_clusters"]),
        has_effect=st.booleans(),
    )
    def fail_next(self, fault: int, verb: str, has_effect: bool) -> None:
        error = FAULTS[fault] if verb == "launch" else FAULTS[1]
        has_effect &= isinstance(error, ProviderUnavailable) and verb in ("launch", "terminate")
        self.world.cloud.fail_next(verb, error, has_effect=has_effect)  # type: ignore[arg-type]

    @rule(calls=st.integers(1, 3), kind=st.sampled_from(["stale", "lie", "part"]))
    def deceive(self, calls: int, kind: str) -> None:
        if kind == "stale":
            self.world.cloud.freeze_observations(calls)
        elif kind == "lie":
            self.world.cloud.lie_about_terminations(calls)
        else:
            self.world.cloud.launch_part_next(1)

    @rule(seconds=TIMES, has_outage=st.sampled_from([False, False, False, True]))
    def advance(self, seconds: float, has_outage: bool) -> None:
        self.world.advance(seconds, is_present=not has_outage)
        if has_outage:
            self.world.return_from_outage()

    @rule(share=st.sampled_from([0.2, 0.3, 0.9]))
    def move_prices(self, share: float) -> None:
        for offer in self.world.cloud.list_offers():
            if offer.market == "spot":
                self.world.cloud.set_price(offer.id, int(offer.on_demand_hourly_nano * share))
        refresh_quotes(self.world.context, self.world.cloud)

    # ---- promises ---------------------------------------------------------------------------------------------------

    @invariant()
    def promises_hold(self) -> None:
        global steps_done
        steps_done += 1
        self.world.check()
        if self.jobs:
            self._check_progress_is_kept()

    def _check_progress_is_kept(self) -> None:
        """G4: the latest checkpoint moves back only as far, and only as often, as corruption was found."""
        with self.world.transaction(is_reader=True) as session:
            steps = session.execute(select(Job.id, Job.checkpoint_step)).all()
            corrupt = list(session.scalars(select(Checkpoint.job_id).where(Checkpoint.corrupt_at.is_not(None))))
        for job_id, step in steps:
            if (found := corrupt.count(job_id)) == self.corrupted.get(job_id, 0):
                assert (step or 0) >= self.latest.get(job_id, 0)
            self.latest[job_id], self.corrupted[job_id] = step or 0, found

    def teardown(self) -> None:
        try:
            self._finish()
        finally:
            ids.secrets = secrets
            self.world.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _finish(self) -> None:
        """Faults stop: what still stands goes on or is gone, and every job ends, or rests for a stated reason (G5)."""
        for worker in self.workers:
            if worker.is_stalled:
                worker.resume()
        self.world.drain()
        self._check_doors()
        for job_id in self.jobs:
            self._check_rest_is_justified(job_id)

    def _check_doors(self) -> None:
        for job_id in self.jobs:

            def check(session, job_id: str = job_id) -> None:  # type: ignore[no-untyped-def]
                attempts = session.scalars(select(Attempt).where(Attempt.job_id == job_id)).all()
                check_fence_is_kept(session, session.get_one(Job, job_id), attempts)

            run_in_transaction(self.world.context.sessions, check)

    def _check_rest_is_justified(self, job_id: str) -> None:
        """A job that only money holds has not enough of it for another launch."""
        job = self.world.job(job_id)
        if job.status != JobStatus.PAUSED or job.has_user_hold:
            return
        with self.world.transaction(is_reader=True) as session:
            budgets = session.scalars(select(Budget).where(Budget.job_id.is_(None) | (Budget.job_id == job_id))).all()
        span = self.world.context.settings.terms.tail + timedelta(minutes=25, seconds=2)
        need = 10 * 10**9 * job.num_nodes * (span / timedelta(hours=1))
        assert min(one.cap_nano - one.spent_nano for one in budgets) < need, "paused for money that is there"
