"""The run's configuration as a checkpoint records it, and what of it a resumed run must keep."""

from __future__ import annotations

import hashlib

from pydantic import Field

from training.errors import UserError
from training.protocol.base import Sha256, Value
from training.protocol.train_spec import ModelSpec, TrainSpec


class RunConfig(Value):
    """`model` is the architecture after overrides; `data` and `tokenizer` are digests; `num_threads` is a rank's."""

    spec: TrainSpec
    model: ModelSpec
    data: Sha256
    tokenizer: Sha256
    world_size: int = Field(ge=1)
    micro_batch_size: int = Field(ge=1)
    accumulation: int = Field(ge=1)
    num_threads: int = Field(ge=1)
    torch_version: str = Field(max_length=64)

    @property
    def global_batch(self) -> int:
        """Samples a step, over all ranks."""
        return self.micro_batch_size * self.accumulation * self.world_size

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def check_architecture(saved: ModelSpec, wanted: ModelSpec) -> None:
    """A later run inherits the architecture; only dropout may change. Raises UserError that names every difference."""
    changes = [
        f"{field} {getattr(saved, field)} → {getattr(wanted, field)}"
        for field in ModelSpec.model_fields
        if field != "dropout" and getattr(saved, field) != getattr(wanted, field)
    ]
    if changes:
        raise UserError(
            f"model: the checkpoint's architecture cannot be changed ({', '.join(changes)}); start a new job"
        )


def check_data(saved: str, found: str) -> None:
    """Raises UserError when this node's data is not what the checkpoint was trained on."""
    if saved != found:
        raise UserError(
            f"data: this node's data (sha256 {found[:12]}…) is not what the checkpoint was trained on "
            f"({saved[:12]}…); resuming would repeat or skip samples. Give the same files (with `stdlib`, the same Python)"
        )


def split_batch(spec: TrainSpec, world_size: int, saved: RunConfig | None) -> tuple[int, int]:
    """(micro-batch, accumulation) of each rank.

    A run resumed on another number of ranks keeps its global batch, so that it sees the same samples in the same order;
    unless the spec's own batch was changed. Raises UserError when the ranks cannot share it evenly.
    """
    batch = (spec.micro_batch_size, spec.accumulation)
    if saved is None or batch != (saved.spec.micro_batch_size, saved.spec.accumulation):
        return batch
    if world_size == saved.world_size:
        return saved.micro_batch_size, saved.accumulation
    if saved.global_batch % world_size:
        raise UserError(
            f"the checkpoint's global batch of {saved.global_batch} sequences (of {saved.world_size} ranks) cannot be "
            f"shared evenly by {world_size} ranks; resume on a number of ranks that divides it"
        )
    share = saved.global_batch // world_size
    micro_batch_size = max(size for size in range(1, spec.micro_batch_size + 1) if share % size == 0)
    return micro_batch_size, share // micro_batch_size
