"""Which checkpoints to keep: the last K, the best K by validation loss, and always the newest verified one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A registered checkpoint, verified and not corrupt."""

    step: int
    fence: int
    val_loss: float | None


def list_prunable(checkpoints: Sequence[Kept], *, keep_last: int, keep_best: int) -> tuple[Kept, ...]:
    """What retention lets go, oldest first. With nothing newer to fall back on, nothing is let go."""
    ordered = sorted(checkpoints, key=lambda kept: (kept.step, kept.fence))
    last = ordered[-max(keep_last, 1) :]
    scored = sorted((k for k in ordered if k.val_loss is not None), key=lambda k: (k.val_loss or 0.0, -k.step))
    staying = {*last, *scored[:keep_best]}
    return tuple(kept for kept in ordered if kept not in staying)
