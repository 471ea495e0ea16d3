"""The bucket's layout and the few verbs that nodes and the service use on it, through obstore.

<root>/jobs/<job>/ckpt/<step>-<fence>/<shards…>, manifest.json (last, create-only)
<root>/jobs/<job>/ckpt/<step>-<fence>/node-<k>/<shards…>, parts/<k>.json (of a gang's other nodes, before manifest.json)
<root>/jobs/<job>/outputs/<fence>/<path>
<root>/jobs/<job>/logs/<fence>/<node_rank>.log
<root>/bundles/<sha256>.tar.gz
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import LocalStore, ObjectStore, from_url

from training.protocol.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, Manifest, digest

_CHECKPOINT = re.compile(r"^(?P<step>\d{1,12})-(?P<fence>\d{1,9})$")


class CheckpointInvalid(Exception):
    """A checkpoint's bytes are not what its manifest or the register promises."""


def open_bucket(url: str) -> ObjectStore:
    """The store at a root URL. `file:///path` is created when missing."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        path.mkdir(parents=True, exist_ok=True)
        return LocalStore(path)
    return from_url(url)


def checkpoints_prefix(job_id: str) -> str:
    return f"jobs/{job_id}/ckpt"


def checkpoint_name(step: int, fence: int) -> str:
    return f"{step}-{fence}"


def checkpoint_prefix(job_id: str, step: int, fence: int) -> str:
    return f"{checkpoints_prefix(job_id)}/{checkpoint_name(step, fence)}"


def outputs_prefix(job_id: str) -> str:
    return f"jobs/{job_id}/outputs"


def logs_key(job_id: str, fence: int, node_rank: int) -> str:
    return f"jobs/{job_id}/logs/{fence}/{node_rank}.log"


def bundle_key(sha256: str) -> str:
    return f"bundles/{sha256}.tar.gz"


def parse_checkpoint_name(name: str) -> tuple[int, int] | None:
    """`(step, fence)`, or None for any other name."""
    match = _CHECKPOINT.match(name)
    return (int(match["step"]), int(match["fence"])) if match else None


def list_checkpoints(bucket: ObjectStore, job_id: str) -> tuple[tuple[int, int], ...]:
    """`(step, fence)` of every checkpoint folder, complete or not, in no order that means anything."""
    prefix = checkpoints_prefix(job_id)
    listing = obstore.list_with_delimiter(bucket, prefix)  # pyright: ignore[reportUnknownMemberType]
    names = (common.removeprefix(prefix).strip("/") for common in listing["common_prefixes"])
    return tuple(parsed for name in names if (parsed := parse_checkpoint_name(name)))


def put_create_only(bucket: ObjectStore, key: str, data: bytes) -> bool:
    """Write unless the key exists; False when it does."""
    try:
        obstore.put(bucket, key, data, mode="create")
    except AlreadyExistsError:
        return False
    return True


def read_manifest(
    bucket: ObjectStore, job_id: str, step: int, fence: int, name: str = MANIFEST_NAME
) -> tuple[Manifest, str] | None:
    """The manifest and its digest, or None when there is none. `name` is another for one node's part of it.

    Errors: CheckpointInvalid.
    """
    key = f"{checkpoint_prefix(job_id, step, fence)}/{name}"
    try:
        answer = obstore.get(bucket, key)
    except FileNotFoundError:
        return None
    if answer.meta["size"] > MAX_MANIFEST_BYTES:
        raise CheckpointInvalid(f"{key}: {answer.meta['size']} bytes are too many for a manifest")
    data = bytes(answer.bytes())
    try:
        return Manifest.model_validate_json(data), digest(data)
    except ValueError as error:
        raise CheckpointInvalid(f"{key}: not a manifest") from error


def iter_bytes(bucket: ObjectStore, key: str, chunk_bytes: int = 8 * 1024 * 1024) -> Iterator[bytes]:
    """An object's bytes in order. Errors: FileNotFoundError."""
    for chunk in obstore.get(bucket, key).stream(min_chunk_size=chunk_bytes):
        yield bytes(chunk)


def verify_checkpoint(bucket: ObjectStore, job_id: str, step: int, fence: int, manifest: Manifest) -> None:
    """Read every file again and hash it. Errors: CheckpointInvalid, naming the first file that differs."""
    prefix = checkpoint_prefix(job_id, step, fence)
    for file in manifest.files:
        hasher, size_bytes = hashlib.sha256(), 0
        try:
            for chunk in iter_bytes(bucket, f"{prefix}/{file.path}"):
                hasher.update(chunk)
                size_bytes += len(chunk)
        except FileNotFoundError as error:
            raise CheckpointInvalid(f"{file.path}: missing") from error
        if size_bytes != file.size_bytes:
            raise CheckpointInvalid(f"{file.path}: {size_bytes} bytes instead of {file.size_bytes}")
        if hasher.hexdigest() != file.sha256:
            raise CheckpointInvalid(f"{file.path}: sha256 differs")
