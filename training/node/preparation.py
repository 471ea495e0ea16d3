"""What comes before the ranks: the workdir bundle, the set-up command and the restore, each abortable."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from training.node.bucket_access import BucketAccess
from training.node.bundle import MAX_BUNDLE_BYTES, BundleRefused, unpack_bundle
from training.node.children import Child, Watchdog, stop_child
from training.node.exits import Verdict
from training.node.layout import Layout
from training.node.link import Conflict, Link, LinkDown, Rejected
from training.node.logs import AGENT_RANK, LogSink
from training.node.restore import DiskFull, NoUsableCheckpoint, RestoreAborted, Restorer
from training.node.status import StatusBoard
from training.protocol.launch_spec import LaunchSpec
from training.protocol.messages import ExitKind, Phase

RETRY_SECONDS = 1.0
MAX_BAD_DOWNLOADS = 3
ABORT_POLL_SECONDS = 0.1


class Aborted(Exception):
    """Nobody waits for the preparation any more."""


class PreparationImpossible(Exception):
    """With the verdict that it comes to."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """`aborted` ends it from outside, within about a tenth of a second."""

    spec: LaunchSpec
    layout: Layout
    environment: Mapping[str, str]
    link: Link
    bucket: BucketAccess
    board: StatusBoard
    sink: LogSink
    watchdog: Watchdog
    aborted: threading.Event
    poke: Callable[[], None]

    def prepare(self) -> Path | None:
        """The folder to resume from, None for a fresh start. Errors: Aborted, PreparationImpossible, Refused."""
        if self.spec.workdir is not None or self.spec.setup is not None:
            self._enter(Phase.SETTING_UP)
        if self.spec.workdir is not None:
            self._fetch_workdir(self.spec.workdir)
        if self.spec.setup is not None:
            self._run_setup(self.spec.setup)
        if self.spec.train is not None:
            self.layout.train_spec_file.write_text(self.spec.train.model_dump_json(), encoding="utf-8")
        return self._restore()

    def _enter(self, phase: Phase) -> None:
        self.board.enter(phase)
        self.poke()

    def _fetch_workdir(self, sha256: str) -> None:
        for _ in range(MAX_BAD_DOWNLOADS):
            if self._download_bundle() == sha256:
                break
            self.sink.tell("the workdir bundle's sha256 differs, fetching it again")
        else:
            raise _impossible(ExitKind.INFRASTRUCTURE, "the workdir bundle arrives damaged")
        try:
            unpack_bundle(self.layout.bundle_file, self.layout.work)
        except BundleRefused as error:
            raise _impossible(ExitKind.USER_ERROR, f"the workdir bundle is refused: {error}"[:500]) from error
        except OSError as error:
            raise _impossible(ExitKind.INFRASTRUCTURE, f"the workdir bundle: {error.strerror}") from error
        self.layout.bundle_file.unlink(missing_ok=True)

    def _download_bundle(self) -> str:
        while True:
            try:
                return self.link.fetch_bundle(self.layout.bundle_file, MAX_BUNDLE_BYTES)
            except LinkDown as error:
                self.sink.tell(f"the workdir bundle waits: {error}")
            except (Rejected, Conflict, OSError) as error:
                raise _impossible(ExitKind.INFRASTRUCTURE, f"the workdir bundle: {error}"[:500]) from error
            if self.aborted.wait(RETRY_SECONDS):
                raise Aborted

    def _run_setup(self, command: str) -> None:
        argv = ("/bin/sh", "-c", command)
        child = Child(
            argv,
            env=self.environment,
            cwd=self.layout.work,
            rank=AGENT_RANK,
            sink=self.sink,
            watchdog=self.watchdog,
        )
        code = self._wait_abortably(child)
        child.wait_output()
        if self.aborted.is_set():
            raise Aborted
        if code != 0:
            verdict = Verdict(
                kind=ExitKind.USER_ERROR, code=code, rank=AGENT_RANK, reason=f"`setup:` ended with code {code}"
            )
            raise PreparationImpossible(verdict)

    def _wait_abortably(self, child: Child) -> int:
        while True:
            try:
                return child.wait_leader(ABORT_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                if self.aborted.is_set():
                    stop_child(child, self.spec.terms.term_grace.total_seconds())

    def _restore(self) -> Path | None:
        if self.spec.candidates:
            self._enter(Phase.RESTORING)
        restorer = Restorer(
            bucket=self.bucket,
            job_id=self.spec.job_id,
            fence=self.spec.fence,
            node_rank=self.spec.node_rank,
            num_nodes=self.spec.num_nodes,
            target=self.layout.resume,
            wait=self.aborted.wait,
            report_corrupt=self.board.note_corrupt,
            tell=self.sink.tell,
        )
        try:
            taken = restorer.restore(self.spec.candidates)
        except RestoreAborted as error:
            raise Aborted from error
        except NoUsableCheckpoint as error:
            raise _impossible(ExitKind.NO_USABLE_CHECKPOINT, str(error)) from error
        except DiskFull as error:
            raise _impossible(ExitKind.INFRASTRUCTURE, str(error)) from error
        self.board.note_resume(taken[0].step if taken else 0)
        return taken[1] if taken else None


def _impossible(kind: ExitKind, reason: str) -> PreparationImpossible:
    return PreparationImpossible(Verdict(kind=kind, reason=reason))
