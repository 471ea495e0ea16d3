"""Restore: the newest candidate of the service's register that verifies, byte for byte, becomes the resume folder.

A candidate that is damaged is reported and passed over. A bucket out of reach is neither: the agent waits for it, since
to start from an older checkpoint, or from step 0, would silently throw work away.
"""

from __future__ import annotations

import errno
import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from obstore.store import ObjectStore

from training.node.bucket_access import BUCKET_ERRORS, BucketAccess
from training.protocol.bucket import (
    CheckpointInvalid,
    checkpoint_name,
    checkpoint_prefix,
    iter_bytes,
    read_manifest,
)
from training.protocol.launch_spec import Candidate
from training.protocol.manifest import MANIFEST_NAME, Manifest, ManifestFile
from training.protocol.messages import CorruptCheckpoint

RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0, 10.0)


class NoUsableCheckpoint(Exception):
    """Candidates were promised and none verified."""


class RestoreAborted(Exception):
    """The agent is draining: nobody waits for the restore any more."""


class DiskFull(Exception):
    """The node cannot hold the checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Restorer:
    """`wait(seconds)` sleeps and returns True when the restore is to be aborted."""

    bucket: BucketAccess
    job_id: str
    target: Path
    wait: Callable[[float], bool]
    report_corrupt: Callable[[CorruptCheckpoint], None]
    tell: Callable[[str], None]

    def restore(self, candidates: tuple[Candidate, ...]) -> tuple[Candidate, Path] | None:
        """The candidate taken and its folder; None when there are no candidates.

        Errors: NoUsableCheckpoint, RestoreAborted, DiskFull.
        """
        for candidate in candidates:
            name = checkpoint_name(candidate.step, candidate.fence)
            try:
                return candidate, self._download_patiently(candidate, self.target / name)
            except CheckpointInvalid as error:
                self.tell(f"checkpoint {name} is not usable: {error}")
                reason = str(error)[:500]
                self.report_corrupt(CorruptCheckpoint(step=candidate.step, fence=candidate.fence, reason=reason))
        if candidates:
            raise NoUsableCheckpoint(f"none of {len(candidates)} registered checkpoints verified")
        return None

    def _download_patiently(self, candidate: Candidate, folder: Path) -> Path:
        attempt = 0
        while True:
            try:
                return self._download(self.bucket.open(), candidate, folder)
            except BUCKET_ERRORS as error:
                if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                    raise DiskFull(f"no space for checkpoint {folder.name}") from error
                self.tell(f"bucket out of reach, waiting to restore {folder.name}: {type(error).__name__}")
            if self.wait(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]):
                raise RestoreAborted
            attempt += 1

    def _download(self, bucket: ObjectStore, candidate: Candidate, folder: Path) -> Path:
        manifest = _read_promised_manifest(bucket, self.job_id, candidate)
        partial = folder.with_name(folder.name + ".part")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        prefix = checkpoint_prefix(self.job_id, candidate.step, candidate.fence)
        try:
            for file in manifest.files:
                self._download_file(bucket, f"{prefix}/{file.path}", file, partial / file.path)
        except (CheckpointInvalid, RestoreAborted):
            shutil.rmtree(partial, ignore_errors=True)
            raise
        (partial / MANIFEST_NAME).write_bytes(manifest.to_bytes())
        partial.rename(folder)
        return folder

    def _download_file(self, bucket: ObjectStore, key: str, file: ManifestFile, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        hasher, size_bytes = hashlib.sha256(), 0
        try:
            chunks = iter_bytes(bucket, key)
            with path.open("wb") as target:
                for chunk in chunks:
                    hasher.update(chunk)
                    size_bytes += len(chunk)
                    if size_bytes > file.size_bytes:
                        break
                    target.write(chunk)
                    if self.wait(0):
                        raise RestoreAborted
        except FileNotFoundError as error:
            raise CheckpointInvalid(f"{file.path}: missing") from error
        if size_bytes != file.size_bytes:
            raise CheckpointInvalid(f"{file.path}: {size_bytes} bytes instead of {file.size_bytes}")
        if hasher.hexdigest() != file.sha256:
            raise CheckpointInvalid(f"{file.path}: sha256 differs")


def _read_promised_manifest(bucket: ObjectStore, job_id: str, candidate: Candidate) -> Manifest:
    found = read_manifest(bucket, job_id, candidate.step, candidate.fence)
    if found is None:
        raise CheckpointInvalid(f"{MANIFEST_NAME}: missing")
    manifest, manifest_sha256 = found
    if manifest_sha256 != candidate.manifest_sha256:
        raise CheckpointInvalid(f"{MANIFEST_NAME}: sha256 differs from the registered one")
    if manifest.step != candidate.step:
        raise CheckpointInvalid(f"{MANIFEST_NAME}: is of step {manifest.step}")
    return manifest
