"""A real agent process against a real HTTP server that plays the service, and a folder that plays the bucket."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.training.node.service_double import TOKEN, ImdsDouble, ServiceDouble
from training.protocol.bucket import open_bucket
from training.protocol.launch_spec import METADATA_URL_ENV, TOKEN_ENV, LaunchSpec

WAIT_SECONDS = 25.0
TRAINER = Path(__file__).with_name("trainer.py")
REPOSITORY = Path(__file__).parents[3]


def wait_until(is_true: Callable[[], Any], what: str, seconds: float = WAIT_SECONDS) -> Any:
    """Bounded polling of something real."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := is_true():
            return value
        time.sleep(0.02)
    raise AssertionError(f"never happened: {what}")


def trainer(last: int = 10**6, every: int = 10**6, pause: float = 0.02) -> str:
    """The shell command of a rank that counts steps."""
    return f"exec python {TRAINER} {last} {every} {pause}"


@dataclass
class Bench:
    """What a test needs to start agents and to see what they did."""

    folder: Path
    service: ServiceDouble
    imds: ImdsDouble
    under: tuple[str, ...] = ()
    """A command that starts the one that follows it, and with that the agent."""
    agents: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def bucket_folder(self) -> Path:
        return self.folder / "bucket"

    def bucket(self):
        return open_bucket(f"file://{self.bucket_folder}")

    @property
    def node(self) -> Path:
        return self.folder / "node"

    def spec(self, **changes: Any) -> LaunchSpec:
        terms = {"heartbeat": 0.2, "drain": 8, "notice_poll": 0.1, "term_grace": 1} | changes.pop("terms", {})
        values = {
            "job_id": "job-1",
            "job_name": "test",
            "attempt_id": "attempt-1",
            "fence": 1,
            "node_rank": 0,
            "num_nodes": 1,
            "ranks_per_node": 1,
            "rendezvous": "127.0.0.1:29511",
            "service_url": self.service.url,
            "checkpoint_root": f"file://{self.bucket_folder}",
            "checkpoint": {},
            "terms": terms,
        }
        if "train" not in changes:
            values["run"] = trainer()
        return LaunchSpec.model_validate(values | changes)

    def start(self, spec: LaunchSpec, **environment: str) -> subprocess.Popen[bytes]:
        """An agent process in the node's folder."""
        self.node.mkdir(exist_ok=True)
        path = self.node / "launch_spec.json"
        path.write_text(spec.model_dump_json())
        path.chmod(0o600)
        with (self.folder / "agent.err").open("ab") as stderr:
            agent = subprocess.Popen(  # noqa: S603 - the program under test
                [*self.under, sys.executable, "-P", "-m", "training.node", "--spec", str(path)],
                cwd=self.node,
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(self.folder),
                    "PYTHONPATH": str(REPOSITORY),
                    TOKEN_ENV: TOKEN,
                    METADATA_URL_ENV: self.imds.url,
                    "GCE_METADATA_HOST": "127.0.0.1:9",
                    "GODWIT_AZURE_METADATA_ENDPOINT": "http://127.0.0.1:9",
                    **environment,
                },
                stderr=stderr,
                start_new_session=True,
            )
        self.agents.append(agent)
        return agent

    def run_to_end(self, spec: LaunchSpec, **environment: str) -> int:
        return self.start(spec, **environment).wait(WAIT_SECONDS)

    def wait_for_step(self, step: int) -> None:
        wait_until(lambda: self.service.step >= step, f"step {step}")

    def exit_report(self):
        last = self.service.last
        assert last is not None
        assert last.exit is not None
        return last.exit

    def committed(self) -> list[tuple[int, int]]:
        """(step, fence) of the checkpoints with a manifest in the bucket."""
        manifests = self.bucket_folder.glob("jobs/job-1/ckpt/*/manifest.json")
        return sorted((int(step), int(fence)) for step, fence in (path.parent.name.split("-") for path in manifests))

    def close(self) -> None:
        for agent in self.agents:
            if agent.poll() is None:
                agent.kill()
                agent.wait()
        self.service.close()
        self.imds.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(folder=tmp_path, service=ServiceDouble(), imds=ImdsDouble())
    yield made
    made.close()


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text() if sys.platform.startswith("linux") else ""
        os.kill(pid, 0)
    except (ProcessLookupError, FileNotFoundError):
        return False
    return stat.rpartition(")")[2].split()[:1] != ["Z"]
