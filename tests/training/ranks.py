"""Real ranks for the tests: processes forked from a server that has torch loaded, so that many can be killed cheaply."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from training.checkpoint.store import find_newest_verified, verify

DEADLINE_SECONDS = 90.0
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the runtime sets it, for the server that loads torch
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["training.run", "training.cli"])


def tiny_spec(source: Path, **changes: Any) -> dict[str, Any]:
    """A run of a few seconds, with dropout."""
    model = {"d_model": 64, "num_layers": 2, "num_heads": 2, "context_length": 32, "vocab_size": 320, "dropout": 0.1}
    spec: dict[str, Any] = {
        "recipe": "nano_gpt",
        "model": model,
        "data": {"source": str(source)},
        "optimizer": {"learning_rate": 0.003},
        "schedule": {"warmup_steps": 5},
        "steps": 24,
        "micro_batch_size": 4,
        "eval_interval": 6,
        "eval_batches": 4,
    }
    return spec | changes


@dataclass
class Job:
    """A job's folders, and attempts at it. Each attempt resumes from the newest verified checkpoint."""

    root: Path
    spec: dict[str, Any]
    world_size: int = 1
    every_steps: int = 3
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.root.glob("rank-*.log")))

    def start(self, resume_dir: Path | None = None) -> list[ForkServerProcess]:
        """Start every rank; from `resume_dir`, else from the newest verified checkpoint."""
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "spec.json").write_text(json.dumps(self.spec))
        environ = {
            "WORLD_SIZE": str(self.world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(find_free_port()),
            "GODWIT_TRAIN_SPEC_FILE": str(self.root / "spec.json"),
            "GODWIT_CHECKPOINT_DIR": str(self.checkpoints),
            "GODWIT_METRICS_FILE": str(self.root / "metrics.jsonl"),
            "GODWIT_OUTPUT_DIR": str(self.root / "outputs"),
            "GODWIT_CACHE_DIR": str(self.root.parent / "cache"),
            "GODWIT_CHECKPOINT_EVERY_STEPS": str(self.every_steps),
            **self.environ,
        }
        newest = resume_dir or find_newest_verified(self.checkpoints)[0]
        if newest:
            environ["GODWIT_RESUME_DIR"] = str(newest)
        ranks = []
        for rank in range(self.world_size):
            own = environ | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            process = CONTEXT.Process(target=run_one_rank, args=(own, str(self.root / f"rank-{rank}.log")), daemon=True)
            process.start()
            ranks.append(process)
        return ranks

    def run(self, resume_dir: Path | None = None) -> list[int | None]:
        """The ranks' exit codes."""
        return join(self.start(resume_dir))

    def metrics(self) -> list[dict[str, Any]]:
        """Whole lines so far."""
        path = self.root / "metrics.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def losses(self) -> list[tuple[int, float]]:
        return [(line["step"], line["loss/train"]) for line in self.metrics() if "loss/train" in line]

    def validations(self) -> list[tuple[int, float]]:
        return [(line["step"], line["loss/validation"]) for line in self.metrics() if "loss/validation" in line]

    def weights(self, step: int) -> dict[str, str]:
        """Digests of weights and moments at a step."""
        manifest = verify(self.checkpoints / str(step))
        return {file.path: file.sha256 for file in manifest.files if file.path in ("model.pt", "optimizer.pt")}


def run_one_rank(environ: dict[str, str], log: str) -> None:
    """In the rank's own process: as the node agent starts it."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.environ.update(environ)
    from training.cli import main

    raise SystemExit(main(["run"]))


def find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_until(is_true: Callable[[], bool], ranks: list[ForkServerProcess], pause_seconds: float = 0.002) -> None:
    """Poll a real process, until the condition holds or a rank has ended."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_true() and all(rank.is_alive() for rank in ranks):
        assert time.monotonic() < deadline, "the ranks did not get there"
        time.sleep(pause_seconds)


def kill(ranks: list[ForkServerProcess]) -> bool:
    """SIGKILL, all at once; whether it was this that ended every one of them."""
    for rank in ranks:
        rank.kill()
    return set(join(ranks)) == {-signal.SIGKILL}


def join(ranks: list[ForkServerProcess]) -> list[int | None]:
    for rank in ranks:
        rank.join(DEADLINE_SECONDS)
        if rank.exitcode is None:
            rank.kill()
    return [rank.exitcode for rank in ranks]
