"""The background uploader: commits the newest saved checkpoint, announces it until acknowledged, clears up behind.

It never blocks the ranks. While the bucket is slow or out of reach the newest pending checkpoint wins, and the ones that
it makes superfluous are counted and logged.

Node 0 commits. The uploaders of other nodes deliver parts of checkpoints that the gang saves in shards (see `gang`): a
step that node 0 has called, or, once their ranks have ended, their newest.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from training.node.bucket_access import BUCKET_ERRORS, BucketAccess
from training.node.clock import utc_now
from training.node.commit import CommitAbandoned, commit_manifest, delete_checkpoint, upload_shards
from training.node.gang import (
    PartsMissing,
    build_part,
    check_share,
    choose_for_gang,
    has_marker,
    is_called,
    is_of_all_nodes,
    merge_parts,
    node_folder,
    part_name,
)
from training.node.link import Conflict, Link, LinkDown, Refused, Rejected
from training.node.saved import Author, SavedInvalid, choose_newest, choose_prunable, find_saved, read_saved
from training.protocol.bucket import CheckpointInvalid
from training.protocol.manifest import Manifest
from training.protocol.messages import CheckpointReceipt, CheckpointRegistration

POLL_SECONDS = 0.2
MAX_RETRY_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class UploadScope:
    """Whose checkpoints these are."""

    job_id: str
    attempt_id: str
    fence: int
    node_rank: int
    num_nodes: int
    world_size: int
    folder: Path
    is_plain_command: bool


class Uploader(threading.Thread):
    """`on_registered(step)` and `on_refused()` are called from this thread."""

    def __init__(
        self,
        scope: UploadScope,
        bucket: BucketAccess,
        link: Link,
        *,
        on_registered: Callable[[int], None],
        on_refused: Callable[[], None],
        tell: Callable[[str], None],
    ) -> None:
        super().__init__(name="uploader", daemon=True)
        self._scope, self._bucket, self._link = scope, bucket, link
        self._on_registered, self._on_refused, self._tell = on_registered, on_refused, tell
        self._author = Author(fence=scope.fence, world_size=scope.world_size)
        self._handled: set[int] = set()
        self._uploaded: tuple[int, set[str]] = (-1, set())
        self._waiting: int | None = None
        self._told_missing = ""
        self._unannounced: list[CheckpointRegistration] = []
        self._failures = 0
        self._skipped = 0
        self._is_urgent = False
        self._is_stopped = False
        self._is_flushing = False
        self._wake = threading.Event()
        self._flushed = threading.Event()

    def run(self) -> None:
        while not self._is_stopped:
            try:
                self._pass_once()
            except Exception as error:  # the thread must outlive what nobody foresaw: without it nothing is kept
                self._failures += 1
                self._tell(f"uploader: {type(error).__name__}: {error}")
            self._wake.wait(self._delay())
            self._wake.clear()

    def _pass_once(self) -> None:
        is_flushing = self._is_flushing
        self._commit_newest()
        self._announce_all()
        self._prune()
        if is_flushing and not self._has_work():
            self._flushed.set()

    def hurry(self) -> None:
        """A drain has begun: an older checkpoint's upload gives way to a newer one's."""
        self._is_urgent = True
        self._wake.set()

    def flush(self, timeout_seconds: float) -> bool:
        """Call once the ranks have ended: True when everything they saved is committed and acknowledged in time.

        On nodes other than 0: when the parts are delivered.
        """
        self._is_urgent = True
        self._is_flushing = True
        self._wake.set()
        return self._flushed.wait(timeout_seconds)

    def stop(self) -> None:
        """Commit and announce nothing more."""
        self._is_stopped = True
        self._wake.set()

    def _delay(self) -> float:
        return POLL_SECONDS if not self._failures else min(MAX_RETRY_SECONDS, 0.25 * 2 ** min(self._failures, 10))

    def _find(self) -> dict[int, Path]:
        """What is to be uploaded from here; other nodes' folders without the marker are nobody's checkpoint."""
        found = find_saved(self._scope.folder, is_plain_command=self._scope.is_plain_command)
        return found if self._scope.node_rank == 0 else {step: path for step, path in found.items() if has_marker(path)}

    def _has_work(self) -> bool:
        return bool(self._unannounced) or choose_newest(self._find().keys(), self._handled)[0] is not None

    def _commit_newest(self) -> None:
        found = self._find()
        chosen, superfluous = self._choose(found.keys() - self._handled)
        if superfluous:
            self._skipped += len(superfluous)
            self._handled |= superfluous
            steps = ", ".join(map(str, sorted(superfluous)))
            self._tell(f"checkpoints skipped for a newer one: {steps} ({self._skipped} in all)")
        if chosen is not None:
            self._try_commit(chosen, found[chosen])

    def _choose(self, pending: Set[int]) -> tuple[int | None, frozenset[int]]:
        if self._scope.node_rank == 0:
            return choose_for_gang(pending, self._waiting, is_draining=self._is_urgent)
        if self._is_flushing:
            return choose_newest(pending, frozenset())
        called = next((step for step in sorted(pending, reverse=True) if self._is_called(step)), None)
        return called, frozenset(step for step in pending if called is not None and step < called)

    def _is_called(self, step: int) -> bool:
        try:
            answer = is_called(self._bucket.open(), self._scope.job_id, step, self._scope.fence)
        except BUCKET_ERRORS:
            self._failures += 1
            return False
        self._failures = 0
        return answer

    def _try_commit(self, step: int, folder: Path) -> None:
        try:
            self._commit(step, folder)
        except PartsMissing as error:
            self._tell_missing(f"checkpoint {step} waits for its part from {error}")
        except (SavedInvalid, CheckpointInvalid) as error:
            self._handled.add(step)
            self._tell(f"checkpoint {step} cannot be kept: {error}")
        except CommitAbandoned:
            pass
        except BUCKET_ERRORS as error:
            self._failures += 1
            if self._failures in (1, 5) or self._failures % 20 == 0:
                self._tell(f"checkpoint {step} waits, bucket out of reach: {type(error).__name__}")
        else:
            self._handled.add(step)
            self._failures = 0

    def _tell_missing(self, text: str) -> None:
        """Once, not at every look."""
        if text != self._told_missing:
            self._told_missing = text
            self._tell(text)

    def _commit(self, step: int, folder: Path) -> None:
        manifest = read_saved(folder, step, self._author)
        if self._uploaded[0] != step:
            self._uploaded = (step, set())
        if self._scope.node_rank != 0:
            self._deliver_part(folder, manifest)
            return
        is_shared = is_of_all_nodes(manifest)
        if is_shared:
            check_share(manifest)
            self._waiting = step
        bucket, job_id = self._bucket.open(), self._scope.job_id
        upload_shards(bucket, job_id, folder, manifest, self._uploaded[1], lambda: self._is_abandoned(step))
        if is_shared:
            manifest = merge_parts(bucket, job_id, manifest, self._scope.num_nodes)
        sha256 = commit_manifest(bucket, job_id, manifest, lambda: self._is_stopped)
        self._unannounced.append(self._registration(manifest, sha256))

    def _deliver_part(self, folder: Path, manifest: Manifest) -> None:
        bucket, scope, uploaded = self._bucket.open(), self._scope, self._uploaded[1]
        part, under = build_part(manifest, scope.node_rank), f"{node_folder(scope.node_rank)}/"
        is_abandoned = partial(self._is_abandoned, manifest.step)
        upload_shards(bucket, scope.job_id, folder, manifest, uploaded, is_abandoned, under=under)
        commit_manifest(bucket, scope.job_id, part, lambda: self._is_stopped, name=part_name(scope.node_rank))

    def _registration(self, manifest: Manifest, manifest_sha256: str) -> CheckpointRegistration:
        return CheckpointRegistration(
            attempt_id=self._scope.attempt_id,
            fence=manifest.fence,
            step=manifest.step,
            manifest_sha256=manifest_sha256,
            size_bytes=manifest.size_bytes,
            val_loss=manifest.val_loss,
            world_size=manifest.world_size,
            tokens=manifest.tokens,
            verified_at=utc_now(),
        )

    def _is_abandoned(self, step: int) -> bool:
        if self._is_stopped:
            return True
        newest, _ = choose_newest(self._find().keys(), self._handled)
        return self._is_urgent and newest is not None and newest > step

    def _announce_all(self) -> None:
        while self._unannounced and not self._is_stopped:
            registration = self._unannounced[0]
            try:
                receipt = self._link.register_checkpoint(registration)
            except LinkDown:
                self._failures += 1
                return
            except Refused:
                self._is_stopped = True
                self._on_refused()
                return
            except (Conflict, Rejected) as error:
                self._tell(f"checkpoint {registration.step} was not registered: {error}")
            else:
                self._on_registered(registration.step)
                self._delete(receipt)
            self._failures = 0
            self._unannounced.pop(0)

    def _delete(self, receipt: CheckpointReceipt) -> None:
        for name in receipt.delete:
            try:
                is_deleted = delete_checkpoint(self._bucket.open(), self._scope.job_id, name)
            except BUCKET_ERRORS as error:
                self._tell(f"checkpoint {name} could not be deleted: {type(error).__name__}")
            else:
                self._tell(
                    f"checkpoint {name} deleted" if is_deleted else "a name that is no checkpoint was not deleted"
                )

    def _prune(self) -> None:
        found = self._find()
        for step in choose_prunable(found.keys(), self._handled):
            shutil.rmtree(found[step], ignore_errors=True)
