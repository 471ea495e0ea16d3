"""The node's working folder. It belongs to one node of one attempt: what an earlier one left is removed at the start."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Every path that the agent and the ranks use, absolute."""

    root: Path
    cache: Path

    @property
    def checkpoints(self) -> Path:
        return self.root / "ckpt"

    @property
    def resume(self) -> Path:
        return self.root / "resume"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def outputs(self) -> Path:
        return self.root / "outputs"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def metrics_file(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def train_spec_file(self) -> Path:
        return self.root / "train_spec.json"

    @property
    def bundle_file(self) -> Path:
        return self.root / "bundle.tar.gz"


def prepare_layout(root: Path, cache: Path | None) -> Layout:
    """Empty folders for a fresh attempt; the cache alone is kept. Errors: OSError."""
    layout = Layout(root=root.absolute(), cache=(cache or root / "cache").absolute())
    folders = (layout.checkpoints, layout.resume, layout.work, layout.outputs, layout.logs)
    for folder in folders:
        if folder.exists():
            shutil.rmtree(folder)
    layout.metrics_file.unlink(missing_ok=True)
    for folder in (*folders, layout.cache):
        folder.mkdir(parents=True, exist_ok=True)
    return layout
