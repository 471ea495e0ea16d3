"""One checkpoint's way into the bucket: shards, every byte read back and hashed, then the manifest, create-only.

An attempt's checkpoint is committed by node 0, after all shards: its own, and in a gang that saves in shards those of
every node (see `gang`). `commit_manifest` is the only place where a checkpoint comes into being.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import obstore
from obstore.store import ObjectStore

from training.node.saved import SavedInvalid
from training.protocol.bucket import (
    CheckpointInvalid,
    checkpoint_prefix,
    parse_checkpoint_name,
    put_create_only,
    read_manifest,
    verify_checkpoint,
)
from training.protocol.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, Manifest, digest
from training.protocol.rank_contract import ALL_NODES


class CommitAbandoned(Exception):
    """A newer checkpoint must have the time, or this attempt may commit nothing more."""


def upload_shards(
    bucket: ObjectStore,
    job_id: str,
    folder: Path,
    manifest: Manifest,
    uploaded: set[str],
    is_abandoned: Callable[[], bool],
    *,
    under: str = "",
) -> None:
    """Upload what `uploaded` does not name yet, adding to it, so that a repeat goes on where the last one broke off.

    `manifest` names `folder`'s files; `under` is the place, ending in `/`, that they take in the checkpoint.
    Errors: CommitAbandoned, SavedInvalid when a file is gone, BUCKET_ERRORS.
    """
    prefix = checkpoint_prefix(job_id, manifest.step, manifest.fence)
    # The marker goes first: it calls the other nodes to upload theirs meanwhile.
    for file in sorted(manifest.files, key=lambda file: file.path != ALL_NODES):
        if is_abandoned():
            raise CommitAbandoned
        if file.path in uploaded:
            continue
        path = folder / file.path
        if not path.is_file() or path.is_symlink():
            raise SavedInvalid(f"{file.path}: missing")
        obstore.put(bucket, f"{prefix}/{under}{file.path}", path)
        uploaded.add(file.path)


def commit_manifest(
    bucket: ObjectStore,
    job_id: str,
    manifest: Manifest,
    is_abandoned: Callable[[], bool],
    *,
    name: str = MANIFEST_NAME,
) -> str:
    """Verify the uploaded bytes, then make the checkpoint exist. The manifest's digest; a repeat gives the same.

    With another `name` it is one node's part that comes to exist. Errors: CheckpointInvalid, CommitAbandoned, BUCKET_ERRORS.
    """
    data = manifest.to_bytes()
    if len(data) > MAX_MANIFEST_BYTES:
        raise CheckpointInvalid(f"{name}: {len(data)} bytes are too many for a manifest; save fewer files")
    verify_checkpoint(bucket, job_id, manifest.step, manifest.fence, manifest)
    if is_abandoned():
        raise CommitAbandoned
    prefix = checkpoint_prefix(job_id, manifest.step, manifest.fence)
    put_create_only(bucket, f"{prefix}/{name}", data)
    found = read_manifest(bucket, job_id, manifest.step, manifest.fence, name)
    if found is None or found[1] != digest(data):
        raise CheckpointInvalid(f"{name}: another one is there already")
    return found[1]


def delete_checkpoint(bucket: ObjectStore, job_id: str, name: str) -> bool:
    """Delete `<step>-<fence>`, its manifest first, so that what is left half-deleted does not exist.

    False for any other name. Errors: BUCKET_ERRORS.
    """
    parsed = parse_checkpoint_name(name)
    if parsed is None:
        return False
    prefix = checkpoint_prefix(job_id, *parsed)
    keys = [entry["path"] for batch in obstore.list(bucket, f"{prefix}/") for entry in batch]
    for key in sorted(keys, key=lambda key: not key.endswith(f"/{MANIFEST_NAME}")):
        obstore.delete(bucket, key)
    return True
