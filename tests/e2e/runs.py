"""One job on a running service, followed through the public API and through its own journal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

from service.cli.spec.bundle import build_bundle
from service.client.models import Event, Job, Preemption
from service.db.session import make_session_factory
from service.ids import cluster_name
from tests.e2e.processes import Tired, find_inside, wait_until
from tests.e2e.stack import Stack
from tests.invariants import check_invariants
from training.protocol.base import Value

LOOP = Path(__file__).parent / "loop"
ENDED = frozenset({"succeeded", "failed", "cancelled"})


class JournalLine(Value):
    """One step that was really computed."""

    fence: int
    rank: int
    step: int
    pid: int


@dataclass(frozen=True)
class Run:
    """A submitted job."""

    stack: Stack
    id: str

    # ---- reading ----------------------------------------------------------------------------------------------------

    def job(self) -> Job:
        return self.stack.api.job(self.id)

    def events(self, kind: str | None = None) -> list[Event]:
        return [event for event in self.stack.api.events(self.id) if kind in (None, event.type)]

    def preemptions(self) -> list[Preemption]:
        return self.stack.api.preemptions(self.id)

    def fences(self) -> list[int]:
        return [attempt.fence for attempt in self.stack.api.attempts(self.id)]

    def journal(self) -> list[JournalLine]:
        """The steps that were computed, oldest first."""
        path = journal_path(self.stack, self.id)
        lines = path.read_text().splitlines() if path.exists() else []
        return [JournalLine.model_validate_json(line) for line in lines]

    def steps(self, rank: int = 0) -> list[int]:
        return [line.step for line in self.journal() if line.rank == rank]

    def result(self) -> dict[str, int]:
        return json.loads(self.stack.api.output_text(self.id, "result.json"))

    # ---- waiting ----------------------------------------------------------------------------------------------------

    def follow(self, is_there: Callable[[Job], bool], what: str, timeout_seconds: float = 90) -> Job:
        """The job once it is there. Errors: Tired, telling all that happened; an end before it is one at once."""

        def look() -> Job | None:
            job = self.job()
            if job.status in ENDED and not is_there(job):
                raise Tired(f"{what} never came, the job has {job.status}")
            return job if is_there(job) else None

        try:
            return wait_until(look, what, timeout_seconds, pause_seconds=0.15)
        except Tired as error:
            raise Tired(f"{error}\n{self.tell()}") from None

    def reach(self, *statuses: str, timeout_seconds: float = 90) -> Job:
        """The job in one of these statuses; an end that was not asked for is an error."""
        job = self.follow(lambda job: job.status in {*statuses, *ENDED}, f"{statuses}", timeout_seconds)
        assert job.status in statuses, f"the job has {job.status}\n{self.tell()}"
        return job

    def step_past(self, step: int, timeout_seconds: float = 60) -> int:
        """The number of a step beyond `step` that was computed, as the journal says."""
        try:
            return wait_until(
                lambda: next((done for done in reversed(self.steps()) if done > step), None),
                f"step {step}",
                timeout_seconds,
            )
        except Tired as error:
            raise Tired(f"{error}\n{self.tell()}") from None

    def tell(self) -> str:
        job = self.job()
        events = [f"{event.at:%T.%f} {event.type} {event.data}" for event in self.events()]
        logs = [f"{line.rank} {line.text}" for line in self.stack.api.logs(self.id, tail=30)]
        return "\n".join([job.model_dump_json(), *events, *logs, self.stack.read_logs()[-4000:]])

    # ---- what is done to it -----------------------------------------------------------------------------------------

    def take_node(self, *, has_notice: bool, node_rank: int = 0) -> None:
        """The market takes a node of the current attempt."""
        name = cluster_name(self.id, self.job().model_extra["fence"])  # pyright: ignore[reportOptionalSubscript]
        self.stack.cloud.interrupt(name, node_rank, has_notice=has_notice)

    # ---- what must be true ------------------------------------------------------------------------------------------

    def succeed(self, steps: int, timeout_seconds: float = 120) -> Job:
        """Follow it to its end: it succeeded, with the very state that an undisturbed run ends with."""
        job = self.reach("succeeded", timeout_seconds=timeout_seconds)
        assert (job.end_reason, job.step, job.checkpoint_step) == ("completed", steps, steps)
        assert self.result()["state"] == expected_state(steps)
        check_promises(self.stack)
        return job

    def never_interrupted(self, steps: int) -> None:
        """One attempt, one process, each step computed once."""
        assert self.fences() == [1]
        assert {line.pid for line in self.journal()} == {self.journal()[0].pid}
        assert self.steps() == list(range(1, steps + 1))

    def repeated_steps(self) -> int:
        """How many steps were computed again, over all attempts."""
        steps = self.steps()
        return sum(max(0, before + 1 - after) for before, after in pairwise(steps))


def submit(stack: Stack, *, steps: int = 60, step_seconds: float = 0.05, **changes: object) -> Run:
    """The loop beside this file as a job; `changes` are fields of its spec."""
    environment = {"STEPS": str(steps), "STEP_SECONDS": str(step_seconds)}
    more = changes.pop("env", {})
    assert isinstance(more, Mapping)
    spec: dict[str, object] = {
        "name": "loop",
        "run": "python3 train.py",
        "workdir": upload_folder(stack, LOOP),
        "checkpoint": {"every_steps": 10},
        "budget": {"cap_usd": "20.00"},
        **changes,
    }
    return submit_spec(stack, {**spec, "env": {**environment, **more}})


def submit_spec(stack: Stack, spec: Mapping[str, object]) -> Run:
    """Any spec; its journal's path is known only with the environment, so each submission has a number of its own."""
    number = sum(1 for _ in stack.folder.glob("journal-*")) + 1
    path = stack.folder / f"journal-{number}"
    path.touch()
    env = spec.get("env", {})
    assert isinstance(env, Mapping)
    job = stack.api.submit({**spec, "env": {**env, "JOURNAL": str(path)}})
    return Run(stack, job.id)


def journal_path(stack: Stack, job_id: str) -> Path:
    """Of a job that was submitted here."""
    return Path(_read_env(stack, job_id)["JOURNAL"])


@cache
def _read_env(stack: Stack, job_id: str) -> dict[str, str]:
    extra = stack.api.job(job_id).model_extra or {}
    return extra["spec"]["env"]


@cache
def upload_folder(stack: Stack, folder: Path) -> str:
    """The digest of the folder's bundle, uploaded once."""
    bundle = build_bundle(folder)
    stack.api.upload_bundle(bundle.content)
    return bundle.sha256


def expected_state(steps: int) -> int:
    """Of the loop after so many steps, none of them left out or done twice."""
    state = 1
    for _ in range(steps):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return state


def check_promises(stack: Stack) -> None:
    """G1-G4 over everything that the service knows, at one instant."""
    billed = [cluster.cluster_name for cluster in stack.cloud.list_clusters()]
    options = {} if stack.engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with make_session_factory(stack.engine)() as session:
        session.connection(execution_options={"is_reader": True, **options})
        check_invariants(session, billed)


def list_node_processes(run: Run) -> list[str]:
    """Command lines of whatever still works in a folder of one of the job's nodes."""
    prefix = cluster_name(run.id, 0).removesuffix("0")
    found = []
    for folder in (run.stack.cloud_folder / "clusters").glob(f"{prefix}*"):
        found += [" ".join(process.cmdline()) for process in find_inside(folder)]
    return found
