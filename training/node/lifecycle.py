"""Every decision of the agent, as a pure function: `advance(life, event, now) -> (life, actions)`.

    booting ── first grant ──> preparing ── prepared ──> running ── drain, stop, a rank's failure ──> ending
       │                           │                        │                                           │
       └── drain: nothing to save ─┴── failed, drain ───────┴── all ranks ended ──> closing <── all gone ┘
                                                                                      │
    off <── report accepted, or the bound reached ── reporting <── all uploaded ──────┘

`refused` (fenced, or a token that is no longer good) goes from anywhere to `off`: ranks killed, nothing committed.
`now` and every instant are seconds on the suspend-aware clock of `clock.boot_seconds`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from training.node.exits import RankExit, Verdict, classify, kind_of
from training.protocol.messages import ExitKind

RANKS_SHARE_OF_DRAIN = 0.7
"""Ranks that still run then are killed; the rest of the bound is for the upload of what they saved before."""
CLOSING_SHARE_OF_DRAIN = 0.9
COMPLETED_DRAINS = 10
"""A completed job's outputs may take this many times the drain's bound, and at least ten minutes."""
PEER_GRACE_SECONDS = 2.0
"""How long a lost peer's cause is waited for: the rank that really failed may end a moment later."""


class Stage(StrEnum):
    BOOTING = "booting"
    PREPARING = "preparing"
    RUNNING = "running"
    ENDING = "ending"
    CLOSING = "closing"
    REPORTING = "reporting"
    OFF = "off"


class Action(StrEnum):
    PREPARE = "prepare"
    ABORT_PREPARATION = "abort_preparation"
    START_RANKS = "start_ranks"
    TERMINATE_RANKS = "terminate_ranks"
    KILL_RANKS = "kill_ranks"
    ASK_FOR_CHECKPOINT = "ask_for_checkpoint"
    CLOSE = "close"
    REPORT = "report"
    POWER_OFF = "power_off"


@dataclass(frozen=True)
class Granted:
    """The first accepted reply."""


@dataclass(frozen=True)
class RefusedByService:
    """409 `fenced`, 401 or 403."""


@dataclass(frozen=True)
class DrainAsked:
    """By the service, a preemption notice, the grant's end or a SIGTERM to the agent."""


@dataclass(frozen=True)
class StopAsked:
    """Kill the ranks, no checkpoint."""


@dataclass(frozen=True)
class CheckpointAsked:
    """Save now, go on."""


@dataclass(frozen=True)
class Prepared:
    """Bundle, set-up and restore are done."""


@dataclass(frozen=True)
class PreparationFailed:
    verdict: Verdict


@dataclass(frozen=True)
class RankExited:
    rank: int
    code: int


@dataclass(frozen=True)
class Closed:
    """`is_complete`: everything that had to be uploaded is."""

    is_complete: bool


@dataclass(frozen=True)
class Reported:
    """The service accepted the exit report."""


@dataclass(frozen=True)
class Tick:
    """Time passed."""


Event = (
    Granted
    | RefusedByService
    | DrainAsked
    | StopAsked
    | CheckpointAsked
    | Prepared
    | PreparationFailed
    | RankExited
    | Closed
    | Reported
    | Tick
)


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Seconds."""

    drain: float
    boot: float
    """A node that nobody answers for so long powers off: no grant was ever given."""


@dataclass(frozen=True, kw_only=True)
class Life:
    bounds: Bounds
    started_at: float
    ranks: frozenset[int]
    stage: Stage = Stage.BOOTING
    alive: frozenset[int] = frozenset()
    killed: frozenset[int] = frozenset()
    exits: tuple[RankExit, ...] = ()
    is_draining: bool = False
    is_stopped: bool = False
    kill_at: float | None = None
    close_by: float | None = None
    end_by: float | None = None
    verdict: Verdict | None = None


Step = tuple[Life, tuple[Action, ...]]


def advance(life: Life, event: Event, now: float) -> Step:
    """The next state and what to do, in order. An event that means nothing in the present stage changes nothing."""
    if life.stage is Stage.OFF:
        return life, ()
    return _HANDLERS[type(event)](life, event, now)


def _granted(life: Life, _event: Granted, _now: float) -> Step:
    if life.stage is not Stage.BOOTING:
        return life, ()
    return replace(life, stage=Stage.PREPARING), (Action.PREPARE,)


def _refused(life: Life, _event: RefusedByService, _now: float) -> Step:
    return replace(life, stage=Stage.OFF, verdict=None), (Action.KILL_RANKS, Action.POWER_OFF)


def _drain(life: Life, _event: DrainAsked, now: float) -> Step:
    if life.is_draining:
        return life, ()
    drain = life.bounds.drain
    draining = replace(
        life,
        is_draining=True,
        end_by=now + drain,
        close_by=min(life.close_by or now + drain, now + drain * CLOSING_SHARE_OF_DRAIN),
    )
    if life.stage is Stage.RUNNING:
        kill_at = now + drain * RANKS_SHARE_OF_DRAIN
        return replace(draining, stage=Stage.ENDING, kill_at=kill_at), (Action.TERMINATE_RANKS,)
    if life.stage in (Stage.BOOTING, Stage.PREPARING):
        return _leave_early(draining, "stopped before the ranks started")
    return draining, ()


def _leave_early(life: Life, reason: str) -> Step:
    ending = replace(life, verdict=Verdict(kind=ExitKind.DRAINED, reason=reason))
    if life.stage is Stage.BOOTING:
        return replace(ending, stage=Stage.REPORTING), (Action.REPORT,)
    return replace(ending, stage=Stage.CLOSING), (Action.ABORT_PREPARATION, Action.CLOSE)


def _stop(life: Life, _event: StopAsked, now: float) -> Step:
    if life.is_stopped:
        return life, ()
    drain = life.bounds.drain
    stopped = replace(
        life,
        is_stopped=True,
        is_draining=True,
        end_by=min(life.end_by or now + drain, now + drain),
        close_by=min(life.close_by or now + drain, now + drain * CLOSING_SHARE_OF_DRAIN),
    )
    if life.stage in (Stage.RUNNING, Stage.ENDING):
        return _kill(replace(stopped, stage=Stage.ENDING), now)
    if life.stage in (Stage.BOOTING, Stage.PREPARING):
        return _leave_early(stopped, "stopped at once, as asked")
    return stopped, ()


def _kill(life: Life, now: float) -> Step:
    close_by = life.close_by or now + life.bounds.drain
    return replace(life, killed=life.killed | life.alive, kill_at=None, close_by=close_by), (Action.KILL_RANKS,)


def _checkpoint(life: Life, _event: CheckpointAsked, _now: float) -> Step:
    return life, ((Action.ASK_FOR_CHECKPOINT,) if life.stage is Stage.RUNNING else ())


def _prepared(life: Life, _event: Prepared, _now: float) -> Step:
    if life.stage is not Stage.PREPARING:
        return life, ()
    return replace(life, stage=Stage.RUNNING, alive=life.ranks), (Action.START_RANKS,)


def _preparation_failed(life: Life, event: PreparationFailed, now: float) -> Step:
    if life.stage is not Stage.PREPARING:
        return life, ()
    return _close(life, event.verdict, now)


def _rank_exited(life: Life, event: RankExited, now: float) -> Step:
    if event.rank not in life.alive:
        return life, ()
    is_killed = event.rank in life.killed and event.code < 0
    ended = RankExit(rank=event.rank, code=event.code, is_asked=life.is_draining, is_killed=is_killed)
    life = replace(life, alive=life.alive - {event.rank}, exits=(*life.exits, ended))
    if not life.alive:
        return _close(life, classify(life.exits), now)
    if life.is_draining:
        return life, ()
    return _end_the_others(life, kind_of(event.code, is_asked=False), now)


def _end_the_others(life: Life, kind: ExitKind, now: float) -> Step:
    """One rank ended and others run: what becomes of them."""
    if kind is ExitKind.COMPLETED:
        return life, ()
    if kind is ExitKind.DRAINED:
        return _drain(life, DrainAsked(), now)
    if kind is ExitKind.INFRASTRUCTURE:
        return replace(life, stage=Stage.ENDING, kill_at=now + PEER_GRACE_SECONDS), ()
    return _kill(replace(life, stage=Stage.ENDING), now)


def _close(life: Life, verdict: Verdict, now: float) -> Step:
    drain = life.bounds.drain
    is_completed = verdict.kind is ExitKind.COMPLETED
    patience = max(COMPLETED_DRAINS * drain, 600.0) if is_completed else drain
    close_by = life.close_by if life.is_draining else now + patience
    return replace(life, stage=Stage.CLOSING, verdict=verdict, close_by=close_by, kill_at=None), (Action.CLOSE,)


def _closed(life: Life, event: Closed, _now: float) -> Step:
    if life.stage is not Stage.CLOSING:
        return life, ()
    verdict = life.verdict
    if not event.is_complete and verdict is not None and verdict.kind is ExitKind.COMPLETED:
        # Without its outputs the job is not complete: it resumes from its last checkpoint and uploads them again.
        kind = ExitKind.DRAINED if life.is_draining else ExitKind.INFRASTRUCTURE
        verdict = Verdict(kind=kind, reason="the ranks completed, and their outputs could not all be uploaded in time")
    return replace(life, stage=Stage.REPORTING, verdict=verdict), (Action.REPORT,)


def _reported(life: Life, _event: Reported, _now: float) -> Step:
    if life.stage is not Stage.REPORTING:
        return life, ()
    return replace(life, stage=Stage.OFF), (Action.POWER_OFF,)


def _tick(life: Life, _event: Tick, now: float) -> Step:
    if life.stage is Stage.BOOTING and now >= life.started_at + life.bounds.boot:
        verdict = Verdict(kind=ExitKind.INFRASTRUCTURE, reason="the service never answered")
        return replace(life, stage=Stage.OFF, verdict=verdict), (Action.POWER_OFF,)
    if life.stage is Stage.ENDING and _is_past(life.kill_at, now):
        return _kill(life, now)
    if life.stage is Stage.ENDING and _is_past(life.close_by, now):
        # A process that not even SIGKILL ends (stuck in the kernel) must not keep the node up.
        return _close(life, classify(life.exits), now)
    if life.stage is Stage.CLOSING and _is_past(life.close_by, now):
        return _closed(life, Closed(is_complete=False), now)
    if life.stage is Stage.REPORTING and _is_past(life.end_by, now):
        return replace(life, stage=Stage.OFF), (Action.POWER_OFF,)
    return life, ()


def _is_past(instant: float | None, now: float) -> bool:
    return instant is not None and now >= instant


_HANDLERS: dict[type, Callable[[Life, Any, float], Step]] = {
    Granted: _granted,
    RefusedByService: _refused,
    DrainAsked: _drain,
    StopAsked: _stop,
    CheckpointAsked: _checkpoint,
    Prepared: _prepared,
    PreparationFailed: _preparation_failed,
    RankExited: _rank_exited,
    Closed: _closed,
    Reported: _reported,
    Tick: _tick,
}
