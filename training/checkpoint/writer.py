"""Checkpoints written behind the run's back: one save in flight, in a thread; the next is skipped and counted."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from training.checkpoint import store
from training.checkpoint.state import Snapshot, write_snapshot
from training.protocol.manifest import Manifest


@dataclass(frozen=True, kw_only=True)
class SaveResult:
    """How one save ended. `fault` is None when the checkpoint exists."""

    step: int
    seconds: float
    size_bytes: int = 0
    fault: str | None = None


class CheckpointWriter:
    """Owns `root`. Only rank 0 has one. `fault` is why the last save that ended failed, if it did."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._thread: threading.Thread | None = None
        self._results: list[SaveResult] = []
        self.skipped = 0
        self.fault: str | None = None
        root.mkdir(parents=True, exist_ok=True)
        store.remove_unfinished(root)

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def save(self, take: Callable[[], Snapshot]) -> bool:
        """Take the snapshot now and write it in the background. False when a save is in flight: this one is skipped."""
        if self.is_busy:
            self.skipped += 1
            return False
        snapshot = take()
        self._thread = threading.Thread(target=self._write, args=(snapshot,), name="checkpoint-writer", daemon=True)
        self._thread.start()
        return True

    def wait(self) -> None:
        """Until no save is in flight."""
        if self._thread is not None:
            self._thread.join()

    def take_results(self) -> list[SaveResult]:
        """Saves ended since the last call."""
        results, self._results = self._results, []
        return results

    def _write(self, snapshot: Snapshot) -> None:
        started, step = time.monotonic(), snapshot.progress.step
        try:
            size_bytes = write_checkpoint(snapshot, self._root)
            result = SaveResult(step=step, seconds=time.monotonic() - started, size_bytes=size_bytes)
        except Exception as error:  # whatever it is, the run learns of it as a fault, not as a thread that is gone
            result = SaveResult(step=step, seconds=time.monotonic() - started, fault=f"{type(error).__name__}: {error}")
        self.fault = result.fault
        self._results.append(result)


def finite_or_none(loss: float | None) -> float | None:
    return loss if loss is not None and math.isfinite(loss) else None


def write_checkpoint(snapshot: Snapshot, root: Path) -> int:
    """Write, hash, flush and rename; the size in bytes. Raises OSError, or RuntimeError from torch, on a bad disk."""
    building = store.open_building(root, snapshot.progress.step)
    names = write_snapshot(snapshot, building)
    manifest = Manifest(
        step=snapshot.progress.step,
        fence=snapshot.fence,
        world_size=snapshot.config.world_size,
        tokens=snapshot.progress.tokens,
        val_loss=finite_or_none(snapshot.progress.val_loss),
        files=tuple(store.describe_file(building / name) for name in names),
    )
    store.commit(building, root, manifest)
    return manifest.size_bytes
