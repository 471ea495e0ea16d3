"""Restore: the newest candidate of the service's register that verifies, byte for byte, becomes the resume folder.

A candidate that is damaged is reported and passed over. A bucket out of reach is neither: the agent waits for it, since
to start from an older checkpoint, or from step 0, would silently throw work away.

Of a checkpoint that a gang saved in shards each node downloads and verifies its share. Only one of them sees that a shard
is damaged, so they tell each other, through the bucket, and all take the same candidate.
"""

from __future__ import annotations

import errno
import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from obstore.store import ObjectStore

from training.node.bucket_access import BUCKET_ERRORS, BucketAccess
from training.node.gang import (
    check_presence,
    describe_placed,
    is_of_all_nodes,
    place_files,
    read_verdicts,
    tell_verdict,
    verdicts_folder,
)
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
PEER_POLL_SECONDS = 0.5


class NoUsableCheckpoint(Exception):
    """Candidates were promised and none verified."""


class RestoreAborted(Exception):
    """The agent is draining: nobody waits for the restore any more."""


class PeerDamaged(Exception):
    """This node's share is sound and another node's is not; that node reports it."""


class DiskFull(Exception):
    """The node cannot hold the checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Restorer:
    """`wait(seconds)` sleeps and returns True when the restore is to be aborted."""

    bucket: BucketAccess
    job_id: str
    fence: int
    node_rank: int
    num_nodes: int
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
            folder = self.target / name
            try:
                self._patiently(name, partial(self._take, candidate, folder))
            except PeerDamaged as error:
                self.tell(f"checkpoint {name} is not usable: {error}")
                shutil.rmtree(folder, ignore_errors=True)
            except CheckpointInvalid as error:
                self.tell(f"checkpoint {name} is not usable: {error}")
                reason = str(error)[:500]
                self.report_corrupt(CorruptCheckpoint(step=candidate.step, fence=candidate.fence, reason=reason))
                self._patiently(name, partial(self._tell_verdict, candidate, is_usable=False))
            else:
                return candidate, folder
        if candidates:
            raise NoUsableCheckpoint(f"none of {len(candidates)} registered checkpoints verified")
        return None

    def _patiently(self, name: str, act: Callable[[], None]) -> None:
        """Act, once the bucket is in reach. Errors: RestoreAborted, DiskFull, and those of `act`."""
        attempt = 0
        while True:
            try:
                act()
            except BUCKET_ERRORS as error:
                if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                    raise DiskFull(f"no space for checkpoint {name}") from error
                self.tell(f"bucket out of reach, waiting to restore {name}: {type(error).__name__}")
            else:
                return
            if self.wait(RETRY_SECONDS[min(attempt, len(RETRY_SECONDS) - 1)]):
                raise RestoreAborted
            attempt += 1

    def _take(self, candidate: Candidate, folder: Path) -> None:
        bucket = self.bucket.open()
        manifest = _read_promised_manifest(bucket, self.job_id, candidate)
        if not folder.exists():  # a repeat after the bucket went out of reach keeps what is verified already
            self._download(bucket, candidate, manifest, folder)
        if is_of_all_nodes(manifest) and self.num_nodes > 1:
            self._agree(bucket, candidate)

    def _agree(self, bucket: ObjectStore, candidate: Candidate) -> None:
        """Wait until every node's share is verified. Errors: PeerDamaged, RestoreAborted, BUCKET_ERRORS."""
        self._tell_verdict(candidate, is_usable=True)
        while True:
            verdicts = read_verdicts(bucket, self._verdicts_folder(candidate), self.num_nodes)
            if damaged := [node for node, is_usable in verdicts.items() if not is_usable]:
                raise PeerDamaged(f"node {damaged[0]} found its share damaged")
            if len(verdicts) == self.num_nodes:
                return
            if self.wait(PEER_POLL_SECONDS):
                raise RestoreAborted

    def _tell_verdict(self, candidate: Candidate, *, is_usable: bool) -> None:
        if self.num_nodes > 1:
            tell_verdict(self.bucket.open(), self._verdicts_folder(candidate), self.node_rank, is_usable=is_usable)

    def _verdicts_folder(self, candidate: Candidate) -> str:
        return verdicts_folder(self.job_id, candidate.step, candidate.fence, self.fence)

    def _download(self, bucket: ObjectStore, candidate: Candidate, manifest: Manifest, folder: Path) -> None:
        placed = place_files(manifest, self.node_rank, self.num_nodes)
        unfinished = folder.with_name(folder.name + ".part")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        prefix = checkpoint_prefix(self.job_id, candidate.step, candidate.fence)
        try:
            for place, file in placed.items():
                self._download_file(bucket, f"{prefix}/{file.path}", file, unfinished / place)
            if self.node_rank == 0:
                taken = {file.path for file in placed.values()}
                check_presence(bucket, prefix, [file for file in manifest.files if file.path not in taken])
        except (CheckpointInvalid, RestoreAborted):
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        (unfinished / MANIFEST_NAME).write_bytes(describe_placed(manifest, placed).to_bytes())
        unfinished.rename(folder)

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
