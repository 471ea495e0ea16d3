"""What the environment tells a rank: torchrun's variables and those of the node agent. Read here and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from training.errors import UserError
from training.protocol import rank_contract


@dataclass(frozen=True, kw_only=True)
class RankEnv:
    """`every_steps` and `every_seconds` say when to save, besides on a signal and at the end; either may be none."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    ranks_per_node: int = 1
    fence: int = 1
    checkpoint_dir: Path
    resume_dir: Path | None = None
    metrics_file: Path
    output_dir: Path
    cache_dir: Path
    every_steps: int | None = None
    every_seconds: float | None = None


def read_rank_env(environ: Mapping[str, str]) -> RankEnv:
    """Raises UserError that names the variable at fault."""
    world_size = _number(environ, "WORLD_SIZE", 1)
    ranks_per_node = _number(
        environ, "LOCAL_WORLD_SIZE", max(1, world_size // _number(environ, rank_contract.NUM_NODES, 1))
    )
    resume_dir = environ.get(rank_contract.RESUME_DIR)
    every_seconds = environ.get(rank_contract.CHECKPOINT_EVERY_SECONDS)
    return RankEnv(
        rank=_number(environ, "RANK", 0),
        local_rank=_number(environ, "LOCAL_RANK", 0),
        world_size=world_size,
        ranks_per_node=ranks_per_node,
        fence=_number(environ, rank_contract.FENCE, 1),
        checkpoint_dir=_folder(environ, rank_contract.CHECKPOINT_DIR),
        resume_dir=Path(resume_dir) if resume_dir else None,
        metrics_file=_folder(environ, rank_contract.METRICS_FILE),
        output_dir=_folder(environ, rank_contract.OUTPUT_DIR),
        cache_dir=_folder(environ, rank_contract.CACHE_DIR),
        every_steps=_number(environ, rank_contract.CHECKPOINT_EVERY_STEPS, 0) or None,
        every_seconds=_seconds(every_seconds) if every_seconds else None,
    )


def rank_env_below(
    folder: Path, *, resume_dir: Path | None, every_steps: int | None, every_seconds: float | None
) -> RankEnv:
    """The environment of a run by hand: one process, everything below one folder."""
    return RankEnv(
        checkpoint_dir=folder / "checkpoints",
        resume_dir=resume_dir,
        metrics_file=folder / "metrics.jsonl",
        output_dir=folder / "outputs",
        cache_dir=folder / "cache",
        every_steps=every_steps,
        every_seconds=every_seconds,
    )


def count_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _folder(environ: Mapping[str, str], name: str) -> Path:
    if not environ.get(name):
        raise UserError(f"{name} is not set; to run by hand, use --spec FILE --dir DIR")
    return Path(environ[name])


def _number(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    if text and not (text.isascii() and text.isdigit()):
        raise UserError(f"{name}={text[:40]!r} is not a whole number")
    return int(text) if text else default


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UserError(f"{rank_contract.CHECKPOINT_EVERY_SECONDS}={text[:40]!r} is not a positive number of seconds")
    return seconds
