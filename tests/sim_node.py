"""A clock and a node as values: what `tests.world` moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from training.protocol.launch_spec import LaunchSpec
from training.protocol.messages import CorruptCheckpoint, ExitReport, Heartbeat, Notice, Phase

START = datetime(2026, 3, 29, 0, 30, 0, 123_456, tzinfo=UTC)


@dataclass
class FakeClock:
    now: datetime = START

    def __call__(self) -> datetime:
        return self.now


@dataclass
class SimNode:
    """One node: what its agent knows, and nothing that only the service knows."""

    cluster_name: str
    spec: LaunchSpec
    grant_until: datetime
    seq: int = 0
    step: int = 0
    has_grant: bool = False
    notice: Notice | None = None
    exit: ExitReport | None = None
    corrupt: tuple[CorruptCheckpoint, ...] = ()
    sent: list[Heartbeat] = field(default_factory=list)
    is_fenced: bool = False

    @property
    def rank(self) -> int:
        return self.spec.node_rank

    def next_heartbeat(self) -> Heartbeat:
        self.seq += 1
        resumed = self.spec.candidates[0].step if self.spec.candidates else 0
        is_running = self.has_grant and self.step > resumed
        heartbeat = Heartbeat(
            attempt_id=self.spec.attempt_id,
            fence=self.spec.fence,
            node_rank=self.rank,
            seq=self.seq,
            phase=Phase.RUNNING if is_running else Phase.STARTING_RANKS,
            step=self.step if self.has_grant else None,
            resumed_from_step=resumed if self.has_grant else None,
            corrupt_checkpoints=self.corrupt,
            notice=self.notice,
            exit=self.exit,
        )
        self.sent.append(heartbeat)
        return heartbeat
