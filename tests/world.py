"""A small world for tests: the shipped code on a real database, the fake cloud, a clock, and nodes that behave like ours.

Nothing of the service or the workers is replaced. Nodes are values that send real heartbeats and registrations through the
service's own verbs, obey its commands, live on their grant, and power themselves off at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy import event, select, update
from sqlalchemy.orm import Session

from service.agents.service import lock_current, receive_heartbeat
from service.checkpoints.service import Fenced, NewCheckpoint, prune, register
from service.context import make_context
from service.db.claims import wake_job
from service.db.models import Attempt, Budget, Event, Job, Project, Watch
from service.db.session import run_in_transaction, session_scope
from service.db.watches import API, SWEEP, touch_watch
from service.domain.states import TERMINAL_STATUSES, AttemptState, JobStatus, StatusReason
from service.jobs.submit import submit_job
from service.settings import Settings
from tests.invariants import check_invariants
from tests.sim_node import FakeClock, SimNode
from training.protocol.job_spec import JobSpec
from training.protocol.messages import (
    Command,
    ExitKind,
    ExitReport,
    Heartbeat,
    Reply,
)
from worker.billing.accrual import accrue_all
from worker.pricing.refresh import refresh_quotes
from worker.provision.fake import FakeProvisioner
from worker.reconcile.tick import reconcile_job, tick_job
from worker.sweep.due import sweep_due_jobs
from worker.sweep.orphans import sweep_orphans

PROJECT = "prj-test"
BOOT_GRACE = timedelta(minutes=15)
"""How long a node waits for its first answer before it powers off."""
TARGET_STEPS = 100


class World:
    def __init__(self, database: str, folder: Path, **options: Any) -> None:
        self.clock = FakeClock()
        settings = Settings(
            data_dir=folder, database_url=database, broker_url="redis://127.0.0.1:1/0", provisioner="local", **options
        )
        self.context = make_context(settings, clock=self.clock)
        self.cloud = FakeProvisioner(clock=self.clock)
        self.nodes: dict[tuple[str, int], SimNode] = {}
        self._seen_launches = 0
        engine = self.context.sessions.kw["bind"]
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=OFF").close())
        with self.transaction() as session:
            project = Project(id=PROJECT, name="test", allows_unbudgeted_jobs=True, created_at=self.clock.now)
            session.add(project)
            for name in (API, SWEEP):
                touch_watch(session, name, now=self.clock.now - timedelta(days=1))
        self.be_present()
        refresh_quotes(self.context, self.cloud)

    @contextmanager
    def transaction(self, *, is_reader: bool = False) -> Iterator[Session]:
        with session_scope(self.context.sessions, is_reader=is_reader) as session:
            yield session

    def close(self) -> None:
        self.context.sessions.kw["bind"].dispose()

    # ---- users ------------------------------------------------------------------------------------------------------

    def submit(self, *, cap_usd: str | None = None, num_nodes: int = 1, **spec: Any) -> str:
        given = {"name": "job", "run": "true", "resources": {"num_nodes": num_nodes}, **spec}
        if cap_usd is not None:
            given["budget"] = {"cap_usd": Decimal(cap_usd)}
        job_spec = JobSpec.model_validate(given)
        with self.transaction() as session:
            return submit_job(session, self.context, job_spec, project_id=PROJECT, now=self.clock.now).id

    def wish(self, verb: Callable[..., Any], job_id: str, *args: Any, **more: Any) -> None:
        """One of `service.jobs.wishes`, as the API calls it."""
        with self.transaction() as session:
            job = session.scalars(select(Job).where(Job.id == job_id).with_for_update()).one()
            verb(session, job, *args, now=self.clock.now, **more)

    def add_project_budget(self, cap_nano: int) -> str:
        with self.transaction() as session:
            budget = Budget(id="bud-project", project_id=PROJECT, cap_nano=cap_nano, created_at=self.clock.now)
            session.add(budget)
            return budget.id

    # ---- reading ----------------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job:
        with self.transaction(is_reader=True) as session:
            return session.get_one(Job, job_id)

    def attempts(self, job_id: str) -> list[Attempt]:
        with self.transaction(is_reader=True) as session:
            return list(session.scalars(select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.fence)))

    def budget(self, job_id: str | None = None) -> Budget:
        with self.transaction(is_reader=True) as session:
            return session.scalars(select(Budget).where(Budget.job_id == job_id)).one()

    def events(self, kind: str, job_id: str | None = None) -> list[Event]:
        with self.transaction(is_reader=True) as session:
            found = session.scalars(select(Event).where(Event.type == kind).order_by(Event.id)).all()
        return [one for one in found if job_id in (None, one.job_id)]

    def check(self) -> None:
        with self.transaction(is_reader=True) as session:
            check_invariants(session, self.cloud.live_clusters())

    # ---- time -------------------------------------------------------------------------------------------------------

    def be_present(self) -> None:
        """API and sweep did their rounds all the while."""
        with self.transaction() as session:
            session.execute(update(Watch).values(last_at=self.clock.now))

    def advance(self, seconds: float, *, is_present: bool = True) -> None:
        """Let time pass: nodes whose grant ends drain and power off by themselves. Unless present, the service was away."""
        self.clock.now += timedelta(seconds=seconds)
        if is_present:
            self.be_present()
        for node in self.live_nodes():
            if self.clock.now >= node.grant_until:
                if is_present and node.has_grant and node.rank == 0:
                    self.save(node)
                self.power_off(node)

    def return_from_outage(self) -> None:
        with self.transaction() as session:
            for name in (API, SWEEP):
                touch_watch(session, name, now=self.clock.now)

    # ---- workers ----------------------------------------------------------------------------------------------------

    def tick(self, job_id: str) -> bool:
        return tick_job(self.context, self.cloud, job_id)

    def reconcile(self, job_id: str) -> int:
        return reconcile_job(self.context, self.cloud, job_id)

    def sweep(self) -> int:
        """Every due job gets its ticks, as the sweep's messages would make happen."""
        due = self.find_due()
        for job_id in due:
            self.reconcile(job_id)
        return len(due)

    def find_due(self) -> list[str]:
        """What one sweep sends on its way."""
        due: list[str] = []
        sweep_due_jobs(self.context, due.append)
        return due

    def accrue(self) -> int:
        return accrue_all(self.context)

    def reap(self) -> None:
        """G2: within a few orphan sweeps, whatever the provider's answers were, every cluster maps to a live intent."""
        for _ in range(20):
            sweep_orphans(self.context, self.cloud)
            if not (orphans := self._find_orphans()):
                return
        raise AssertionError(f"not reaped: {orphans}")

    def _find_orphans(self) -> set[str]:
        with self.transaction(is_reader=True) as session:
            live = session.scalars(select(Attempt.cluster_name).where(Attempt.state != AttemptState.GONE))
            return set(self.cloud.live_clusters()) - set(live)

    def expire_claims(self) -> None:
        """As if every claim's time had passed on the database's clock."""
        with self.transaction() as session:
            session.execute(
                update(Job).where(Job.claimed_until.is_not(None)).values(claimed_until=datetime(2000, 1, 1, tzinfo=UTC))
            )

    # ---- nodes ------------------------------------------------------------------------------------------------------

    def live_nodes(self, job_id: str | None = None) -> list[SimNode]:
        """The nodes of every cluster that is up; new clusters get theirs here."""
        for request in self.cloud.launches[self._seen_launches :]:
            for spec in request.specs:
                node = SimNode(request.cluster_name, spec, grant_until=self.clock.now + BOOT_GRACE)
                node.step = spec.candidates[0].step if spec.candidates else 0
                self.nodes[request.cluster_name, spec.node_rank] = node
        self._seen_launches = len(self.cloud.launches)
        found = [
            self.nodes[name, fake.rank]
            for name, cluster in self.cloud.live_clusters().items()
            for fake in cluster.live_nodes
        ]
        return [node for node in found if job_id in (None, node.spec.job_id)]

    def power_off(self, node: SimNode) -> None:
        if node.cluster_name in self.cloud.live_clusters():
            self.cloud.power_off(node.cluster_name, [node.rank])

    def deliver(self, heartbeat: Heartbeat) -> Reply:
        """One heartbeat's way through the service. Errors: Fenced."""
        verb = partial(
            receive_heartbeat,
            attempt_id=heartbeat.attempt_id,
            heartbeat=heartbeat,
            terms=self.context.settings.terms,
            now=self.clock.now,
        )
        reply, job_id = run_in_transaction(self.context.sessions, verb)
        if job_id is not None:
            self.wake(job_id)
        return reply

    def wake(self, job_id: str) -> None:
        with self.transaction() as session:
            wake_job(session, job_id, now=self.clock.now)

    def beat(self, node: SimNode, *, is_answer_lost: bool = False) -> Reply | None:
        """The node reports and obeys; None when it was fenced, and is off."""
        sent_at = self.clock.now
        try:
            reply = self.deliver(node.next_heartbeat())
        except Fenced:
            node.is_fenced = True
            self.power_off(node)
            return None
        node.corrupt = ()
        if is_answer_lost:
            return reply
        if node.exit is not None:
            self.power_off(node)
            return reply
        node.has_grant = True
        node.grant_until = sent_at + timedelta(seconds=reply.grant_seconds)
        if Command.STOP in reply.commands:
            self.power_off(node)
        elif Command.DRAIN in reply.commands or reply.grant_seconds == 0:
            self.drain_node(node)
        return reply

    def drain_node(self, node: SimNode) -> None:
        if node.rank == 0 and node.step:
            self.save(node)
        self.finish(node, ExitKind.DRAINED)

    def finish(self, node: SimNode, kind: ExitKind) -> None:
        """The ranks ended: told, then the node is off."""
        node.exit = ExitReport(kind=kind, code=0 if kind is ExitKind.COMPLETED else 1)
        self.beat(node)

    def save(self, node: SimNode) -> bool:
        """Register a checkpoint of the node's step; False when the service barred it."""
        data = f"{node.spec.job_id}/{node.step}/{node.spec.fence}".encode()

        def enter(session: Session) -> None:
            job, attempt = lock_current(session, node.spec.attempt_id, fence=node.spec.fence)
            new = NewCheckpoint(
                job_id=job.id,
                step=node.step,
                fence=attempt.fence,
                manifest_sha256=sha256(data).hexdigest(),
                size_bytes=len(data),
                val_loss=None,
                world_size=1,
                tokens=node.step,
                verified_at=self.clock.now,
            )
            register(session, new, now=self.clock.now)
            prune(session, job.id, JobSpec.model_validate(job.spec).checkpoint, now=self.clock.now)

        try:
            run_in_transaction(self.context.sessions, enter)
        except Fenced:
            return False
        return True

    def run_nodes(self, steps: int = 5) -> None:
        """Every node beats, works some steps, saves, and completes at its target."""
        for node in self.live_nodes():
            if self.beat(node) is None or node.exit is not None or not node.has_grant:
                continue
            node.step += steps
            if node.rank == 0:
                self.save(node)
            if node.step >= TARGET_STEPS:
                self.finish(node, ExitKind.COMPLETED)
            else:
                self.beat(node)

    # ---- whole lives ------------------------------------------------------------------------------------------------

    def run(self, job_id: str, *, until: Callable[[], bool], rounds: int = 60, seconds: float = 5) -> None:
        """Rounds of sweep, nodes and time until the condition holds. Errors: AssertionError with the job's state."""
        for _ in range(rounds):
            self.sweep()
            self.check()
            if until():
                return
            self.run_nodes(steps=0)
            self.advance(seconds)
        job = self.job(job_id)
        raise AssertionError(f"{job.status} ({job.status_reason}) after {rounds} rounds")

    def start(self, **submit: Any) -> tuple[str, list[SimNode]]:
        """A job that runs: its id and its nodes, one step done."""
        job_id = self.submit(**submit)
        self.get_running(job_id)
        return job_id, self.live_nodes(job_id)

    def get_running(self, job_id: str) -> None:
        for _ in range(60):
            self.sweep()
            if self.job(job_id).status == JobStatus.RUNNING:
                return
            for node in self.live_nodes(job_id):
                self.beat(node)
                node.step += 1
                self.beat(node)
            self.advance(1)
        raise AssertionError(f"{job_id} is {self.job(job_id).status}")

    def drain(self, rounds: int = 300) -> None:
        """G5: once faults stop, every job comes to its end or rests for a stated reason. Claims of the dead expire."""
        self.be_present()
        for _ in range(rounds):
            self.expire_claims()
            self.sweep()
            self.accrue()
            if self._is_quiet():
                break
            self.run_nodes(steps=25)
            self.advance(20)
            refresh_quotes(self.context, self.cloud)
        self.reap()
        self.check()
        for job in self._all_jobs():
            assert self._is_at_rest(job), f"{job.id} hangs: {job.status} ({job.status_reason})"

    def _all_jobs(self) -> list[Job]:
        with self.transaction(is_reader=True) as session:
            return list(session.scalars(select(Job)))

    def _is_quiet(self) -> bool:
        return all(self._is_at_rest(job) for job in self._all_jobs())

    def _is_at_rest(self, job: Job) -> bool:
        """Ended, held by the user or by money, or (still queued) waiting for money that other jobs hold."""
        if job.status in TERMINAL_STATUSES:
            return job.retry_requested_at is None
        if job.status == JobStatus.PAUSED:
            return job.has_user_hold or job.has_budget_hold
        return job.status == JobStatus.QUEUED and job.status_reason == StatusReason.BUDGET_RESERVED
