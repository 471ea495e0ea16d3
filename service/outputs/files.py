"""A job's outputs in the bucket. The highest fence that wrote a path has its say."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

import obstore
from obstore.store import ObjectStore

from training.protocol.bucket import outputs_prefix

MAX_PATH_CHARACTERS = 1024
MAX_FILES = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputFile:
    path: str
    fence: int
    size_bytes: int
    modified_at: datetime
    key: str


def list_outputs(bucket: ObjectStore, job_id: str) -> list[OutputFile]:
    """By path; at most MAX_FILES are looked at. Errors: obstore's when the bucket is out of reach."""
    found: dict[str, OutputFile] = {}
    count = 0
    for batch in obstore.list(bucket, outputs_prefix(job_id)):
        for meta in batch:
            file = _parse(job_id, meta["path"], meta["size"], meta["last_modified"])
            if file and (file.path not in found or found[file.path].fence < file.fence):
                found[file.path] = file
        count += len(batch)
        if count >= MAX_FILES:
            break
    return [found[path] for path in sorted(found)]


def is_safe_path(path: str) -> bool:
    """Relative, inside, printable: nothing that a bucket or a browser could take for another place."""
    parts = path.split("/")
    is_plain = path.isprintable() and "\\" not in path and len(path) <= MAX_PATH_CHARACTERS
    return is_plain and all(part not in ("", ".", "..") for part in parts)


def leads_outside(bucket_url: str, key: str) -> bool:
    """Whether a link in a folder that serves as the bucket leads out of it."""
    parts = urlsplit(bucket_url)
    if parts.scheme != "file":
        return False
    root = Path(unquote(parts.path)).resolve()
    return not (root / key).resolve().is_relative_to(root)


def _parse(job_id: str, key: str, size_bytes: int, modified_at: datetime) -> OutputFile | None:
    fence, _, path = key.removeprefix(f"{outputs_prefix(job_id)}/").partition("/")
    if not fence.isdigit() or not is_safe_path(path):
        return None
    return OutputFile(path=path, fence=int(fence), size_bytes=size_bytes, modified_at=modified_at, key=key)
