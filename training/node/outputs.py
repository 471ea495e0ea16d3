"""What outlives the node besides checkpoints: the job's output files and the node's log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import obstore
from obstore.store import ObjectStore

from training.protocol.bucket import logs_key, outputs_prefix

MAX_FILES = 10_000
MAX_BYTES = 100 * 1024**3


class OutputsTooLarge(Exception):
    """More files or bytes than are kept."""


def find_outputs(output_folder: Path, work_folder: Path, globs: Iterable[str]) -> dict[str, Path]:
    """Files by the path they are kept under; the output folder's win over the patterns'. Errors: OutputsTooLarge.

    Symbolic links, and whatever lies behind one, are left out: they may lead anywhere on the node.
    """
    found: dict[str, Path] = {}
    matched = (path for pattern in globs for path in sorted(work_folder.glob(pattern)))
    for root, paths in ((output_folder, sorted(output_folder.iterdir())), (work_folder, matched)):
        for path in _files_inside(root, paths):
            found.setdefault(path.relative_to(root).as_posix(), path)
            if len(found) > MAX_FILES:
                raise OutputsTooLarge(f"more than {MAX_FILES} output files")
    if sum(path.stat().st_size for path in found.values()) > MAX_BYTES:
        raise OutputsTooLarge(f"more than {MAX_BYTES} bytes of outputs")
    return found


def _files_inside(root: Path, paths: Iterable[Path]) -> Iterator[Path]:
    """The regular files among `paths` and in the folders among them, none of them reached through a link."""
    for path in paths:
        if path.resolve() != root.resolve() / path.relative_to(root):
            continue
        if path.is_dir():
            yield from _files_inside(root, sorted(path.iterdir()))
        elif path.is_file():
            yield path


def upload_outputs(
    bucket: ObjectStore, job_id: str, fence: int, node_rank: int, files: dict[str, Path], uploaded: set[str]
) -> None:
    """Upload what `uploaded` does not name yet, adding to it. Nodes but the first have a folder of their own.

    Errors: BUCKET_ERRORS.
    """
    folder = "" if node_rank == 0 else f"node-{node_rank}/"
    for name, path in files.items():
        if name not in uploaded:
            obstore.put(bucket, f"{outputs_prefix(job_id)}/{fence}/{folder}{name}", path)
            uploaded.add(name)


def upload_log(bucket: ObjectStore, job_id: str, fence: int, node_rank: int, log_folder: Path) -> None:
    """The node's log: the agent's part, then each rank's under a heading. Errors: BUCKET_ERRORS."""
    whole = log_folder / "whole.txt"
    with whole.open("wb") as target:
        for path in sorted(log_folder.glob("*.log")):
            target.write(f"== {path.stem} ==\n".encode())
            rotated = path.with_suffix(".log.1")
            for part in (rotated, path):
                if part.exists():
                    target.write(part.read_bytes())
    obstore.put(bucket, logs_key(job_id, fence, node_rank), whole)
