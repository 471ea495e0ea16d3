"""What a checkpoint holds, and its copy in the host's memory.

Files: `model.pt` and `optimizer.pt` (tensors by the name of the weight, float32), `progress.pt` (counters and each rank's
random state), `config.json`, `tokenizer.json`. All tensors are read with `weights_only=True`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from training.checkpoint.config import RunConfig
from training.checkpoint.store import UnusableCheckpointError, verify
from training.optimizer import AdamW, FlatParameters
from training.protocol.manifest import Manifest

MODEL, OPTIMIZER, PROGRESS = "model.pt", "optimizer.pt", "progress.pt"
CONFIG, TOKENIZER = "config.json", "tokenizer.json"


@dataclass(kw_only=True)
class Progress:
    """Where a run is. `samples` is the data cursor; `step` counts finished steps, skipped ones included."""

    step: int = 0
    samples: int = 0
    tokens: int = 0
    skipped_steps: int = 0
    first_loss: float | None = None
    last_loss: float | None = None
    average_loss: float | None = None
    val_loss: float | None = None
    val_step: int = -1
    best_val_loss: float | None = None
    best_val_step: int = -1

    def record_loss(self, loss: float) -> None:
        self.first_loss = loss if self.first_loss is None else self.first_loss
        self.last_loss = loss
        self.average_loss = loss if self.average_loss is None else 0.98 * self.average_loss + 0.02 * loss

    def record_validation(self, loss: float) -> None:
        self.val_loss, self.val_step = loss, self.step
        if math.isfinite(loss) and (self.best_val_loss is None or loss < self.best_val_loss):
            self.best_val_loss, self.best_val_step = loss, self.step


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A run's whole state at one step, in host memory, apart from what trains on. `rng` is (world size, n) bytes."""

    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    progress: Progress
    rng: Tensor
    config: RunConfig
    tokenizer: bytes
    fence: int


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A verified checkpoint, its small parts read."""

    folder: Path
    manifest: Manifest
    config: RunConfig
    tokenizer: bytes


@dataclass(frozen=True, kw_only=True)
class Restored:
    progress: Progress
    rng: Tensor = field(repr=False)


def take_snapshot(
    flat: FlatParameters,
    optimizer: AdamW,
    *,
    progress: Progress,
    rng: Tensor,
    config: RunConfig,
    tokenizer: bytes,
    fence: int,
) -> Snapshot:
    """Copy to the host; the run may go on as soon as this returns."""
    return Snapshot(
        model=flat.name_parts(_copy(flat.values)),
        optimizer={
            "mean": flat.name_parts(_copy(optimizer.mean)),
            "mean_square": flat.name_parts(_copy(optimizer.mean_square)),
            "updates": _copy(optimizer.updates),
        },
        progress=Progress(**asdict(progress)),
        rng=_copy(rng),
        config=config,
        tokenizer=tokenizer,
        fence=fence,
    )


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


def write_snapshot(snapshot: Snapshot, building: Path) -> tuple[str, ...]:
    """Write every file but the manifest; their names."""
    torch.save(snapshot.model, building / MODEL)
    torch.save(snapshot.optimizer, building / OPTIMIZER)
    torch.save({"progress": asdict(snapshot.progress), "rng": snapshot.rng}, building / PROGRESS)
    (building / CONFIG).write_text(snapshot.config.model_dump_json(indent=1))
    (building / TOKENIZER).write_bytes(snapshot.tokenizer)
    return MODEL, OPTIMIZER, PROGRESS, CONFIG, TOKENIZER


def open_checkpoint(folder: Path) -> Checkpoint:
    """Verify and read the small parts. Raises UnusableCheckpointError."""
    manifest = verify(folder)
    try:
        config = RunConfig.model_validate_json((folder / CONFIG).read_bytes())
        tokenizer = (folder / TOKENIZER).read_bytes()
    except (OSError, ValueError) as error:
        raise UnusableCheckpointError(f"{folder} is not one of this runtime: {type(error).__name__}") from error
    return Checkpoint(folder=folder, manifest=manifest, config=config, tokenizer=tokenizer)


def restore(checkpoint: Checkpoint, flat: FlatParameters, optimizer: AdamW) -> Restored:
    """Load weights and moments in place. Raises UnusableCheckpointError."""
    try:
        flat.load(flat.values, _load(checkpoint.folder / MODEL))
        moments = _load(checkpoint.folder / OPTIMIZER)
        flat.load(optimizer.mean, moments["mean"])
        flat.load(optimizer.mean_square, moments["mean_square"])
        optimizer.updates.copy_(moments["updates"])
        saved = _load(checkpoint.folder / PROGRESS)
        known = {name.name for name in fields(Progress)}
        progress = Progress(**{name: value for name, value in saved["progress"].items() if name in known})
    except (OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise UnusableCheckpointError(f"{checkpoint.folder} cannot be loaded: {error}") from error
    if progress.step != checkpoint.manifest.step:
        raise UnusableCheckpointError(f"{checkpoint.folder} holds step {progress.step}, not what its manifest says")
    return Restored(progress=progress, rng=saved["rng"])


def _load(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)
