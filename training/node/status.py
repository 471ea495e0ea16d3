"""What the next heartbeat says about the node: written by many threads, read by the pulse."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from datetime import datetime

from training.protocol.messages import CorruptCheckpoint, ExitReport, Notice, Phase


@dataclass(frozen=True, kw_only=True)
class NodeStatus:
    """The node at one instant, in the heartbeat's own terms."""

    phase: Phase = Phase.BOOTING
    step: int | None = None
    resumed_from_step: int | None = None
    first_step_at: datetime | None = None
    last_checkpoint_step: int | None = None
    corrupt_checkpoints: tuple[CorruptCheckpoint, ...] = ()
    notice: Notice | None = None
    exit: ExitReport | None = None


class StatusBoard:
    """The current status. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._status = NodeStatus()

    def read(self) -> NodeStatus:
        with self._lock:
            return self._status

    def enter(self, phase: Phase) -> None:
        """A node that drains never goes back, whatever a thread that has not heard of it says."""
        with self._lock:
            if self._status.phase not in (Phase.DRAINING, Phase.FINISHED):
                self._status = replace(self._status, phase=phase)

    def note_resume(self, step: int) -> None:
        with self._lock:
            self._status = replace(self._status, resumed_from_step=step, step=step)

    def note_step(self, step: int, at: datetime) -> bool:
        """Take a rank's step; True when it is this attempt's first new one."""
        with self._lock:
            known = self._status
            is_first = known.first_step_at is None and step > (known.resumed_from_step or 0)
            phase = Phase.RUNNING if is_first and known.phase is Phase.STARTING_RANKS else known.phase
            first_step_at = at if is_first else known.first_step_at
            step = max(step, known.step or 0)
            self._status = replace(known, step=step, first_step_at=first_step_at, phase=phase)
            return is_first

    def note_checkpoint(self, step: int) -> None:
        with self._lock:
            newest = max(step, self._status.last_checkpoint_step or 0)
            reached = max(step, self._status.step or 0)
            self._status = replace(self._status, last_checkpoint_step=newest, step=reached)

    def note_corrupt(self, checkpoint: CorruptCheckpoint) -> None:
        with self._lock:
            found = (*self._status.corrupt_checkpoints, checkpoint)
            self._status = replace(self._status, corrupt_checkpoints=found[:100])

    def note_notice(self, notice: Notice) -> None:
        """A preemption is never hidden by a rebalance recommendation."""
        with self._lock:
            known = self._status.notice
            if known is None or known.kind != "preemption":
                self._status = replace(self._status, notice=notice)

    def note_exit(self, report: ExitReport) -> None:
        with self._lock:
            self._status = replace(self._status, exit=report, phase=Phase.FINISHED)
