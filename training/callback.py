"""The checkpoint contract for a training loop of one's own: plain PyTorch, Hugging Face Trainer, Lightning.

    from training import callback

    callback.start()
    if folder := callback.resume_dir():
        ...load from it...
    for step in range(first, last):
        ...train...
        callback.log(step, **{"loss/train": loss})
        if callback.should_save(step):
            with callback.save_dir(step) as folder:
                ...write into it...
        if callback.should_stop():
            callback.exit_drained()

In Hugging Face's `on_step_end` set `control.should_save` and `control.should_training_stop` from these; in Lightning's
`on_train_batch_end` set `trainer.should_stop`. Standard library only. `step` counts finished steps. With several ranks, only
rank 0 logs and saves; a signal reaches every rank, but not at the same step: let the ranks agree before acting on one.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from training.protocol import rank_contract
from training.protocol.rank_contract import ExitCode


@dataclass
class _State:
    has_save_request: bool = False
    has_stop_request: bool = False
    saved_at: float = field(default_factory=time.monotonic)
    saved_step: int | None = None


_state = _State()


def start() -> None:
    """Take SIGUSR1 and SIGTERM as requests. Call once, early, from the main thread."""

    def request_save(_number: int, _frame: object) -> None:
        _state.has_save_request = True

    def request_stop(_number: int, _frame: object) -> None:
        _state.has_stop_request = True

    signal.signal(signal.SIGUSR1, request_save)
    signal.signal(signal.SIGTERM, request_stop)
    _state.saved_at = time.monotonic()


def resume_dir() -> Path | None:
    """The verified checkpoint to load, or None on a first start. Exits with 80 when one was promised and is not there."""
    value = os.environ.get(rank_contract.RESUME_DIR)
    if not value:
        return None
    if not Path(value).is_dir():
        sys.stderr.write(f"error: {rank_contract.RESUME_DIR} is set, but {value} is not a folder\n")
        raise SystemExit(int(ExitCode.NO_USABLE_CHECKPOINT))
    return Path(value)


def should_save(step: int) -> bool:
    """Whether to save now: asked to, or every so many steps or seconds as the job says; never twice at one step."""
    if step == _state.saved_step:
        return False
    every_steps = int(os.environ.get(rank_contract.CHECKPOINT_EVERY_STEPS) or 0)
    every_seconds = float(os.environ.get(rank_contract.CHECKPOINT_EVERY_SECONDS) or math.inf)
    return (
        _state.has_save_request
        or _state.has_stop_request
        or (every_steps > 0 and step > 0 and step % every_steps == 0)
        or time.monotonic() - _state.saved_at >= every_seconds
    )


def should_stop() -> bool:
    """Whether the node is to be given up: save, then `exit_drained()`."""
    return _state.has_stop_request


@contextlib.contextmanager
def save_dir(step: int) -> Iterator[Path]:
    """An empty folder to write a checkpoint into; it appears as `<step>`, whole, when the block ends without an error."""
    root = Path(os.environ.get(rank_contract.CHECKPOINT_DIR) or "checkpoints")
    building = root / f".saving-{step}"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    _state.has_save_request = False
    try:
        yield building
        _sync_tree(building)
        target = root / str(step)
        shutil.rmtree(target, ignore_errors=True)
        building.rename(target)
        _sync(root)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    _state.saved_at, _state.saved_step = time.monotonic(), step


def log(step: int, **metrics: float) -> None:
    """Append one line of metrics, such as `log(step, **{"loss/train": loss})`. Does nothing outside a job."""
    path = os.environ.get(rank_contract.METRICS_FILE)
    if path:
        values = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        with Path(path).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"step": step, "time": time.time(), **values}, allow_nan=False) + "\n")


def exit_drained() -> None:
    """Leave with the code that says: stopped at a checkpoint, resume me."""
    raise SystemExit(int(ExitCode.DRAINED))


def _sync_tree(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        _sync(path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
