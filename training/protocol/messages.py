"""The node protocol: three verbs, each authorised by a token good for one attempt.

    POST /node/v1/heartbeat     Heartbeat              -> Reply
    POST /node/v1/checkpoints   CheckpointRegistration -> CheckpointReceipt
    GET  /node/v1/bundle        the job's workdir bundle, as application/gzip

A lower fence than the job's gets 409 with the problem type `fenced`: the node stops at once and commits nothing more.
A wrong or foreign token gets 401 or 403.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from training.protocol.base import Sha256, Text, Value

HEARTBEAT_PATH = "/node/v1/heartbeat"
CHECKPOINTS_PATH = "/node/v1/checkpoints"
BUNDLE_PATH = "/node/v1/bundle"

MAX_LOG_LINES = 500
MAX_LOG_LINE_CHARACTERS = 2000
MAX_METRIC_POINTS = 500
MAX_METRICS_A_POINT = 64

Identifier = Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")]
MetricName = Annotated[str, Field(pattern=r"^[a-z0-9_]+(/[a-z0-9_@.]+)*$", max_length=128)]


class Phase(StrEnum):
    """What the node is doing. `running` begins with the first new step (or, without metrics, with the ranks' start)."""

    BOOTING = "booting"
    SETTING_UP = "setting_up"
    RESTORING = "restoring"
    STARTING_RANKS = "starting_ranks"
    RUNNING = "running"
    DRAINING = "draining"
    FINISHED = "finished"


class MetricPoint(Value):
    """Metrics at one step; a later attempt's points replace those of the same step or above."""

    step: int = Field(ge=0)
    at: AwareDatetime
    values: dict[MetricName, float] = Field(max_length=MAX_METRICS_A_POINT)


class LogLine(Value):
    at: AwareDatetime
    rank: int = Field(ge=-1, description="-1 is the agent itself or the set-up")
    stream: Literal["stdout", "stderr", "agent"]
    text: Annotated[str, Field(max_length=MAX_LOG_LINE_CHARACTERS)]


class Notice(Value):
    """An interruption notice, as a metadata endpoint gave it."""

    kind: Literal["preemption", "rebalance"] = "preemption"
    terminate_at: AwareDatetime | None = None
    seen_at: AwareDatetime


class ExitKind(StrEnum):
    COMPLETED = "completed"
    DRAINED = "drained"
    USER_ERROR = "user_error"
    INFRASTRUCTURE = "infrastructure"
    NO_USABLE_CHECKPOINT = "no_usable_checkpoint"


class ExitReport(Value):
    """How the node's ranks ended, told once everything they left behind is uploaded and registered."""

    kind: ExitKind
    code: int | None = Field(default=None, description="the deciding rank's exit code; negative for a signal")
    rank: int | None = None
    log_tail: tuple[Annotated[str, Field(max_length=MAX_LOG_LINE_CHARACTERS)], ...] = Field(default=(), max_length=50)
    remedy: Annotated[Text, Field(max_length=2000)] | None = None


class CorruptCheckpoint(Value):
    """A candidate that did not verify on restore, and why."""

    step: int = Field(ge=0)
    fence: int = Field(ge=1)
    reason: Annotated[Text, Field(max_length=500)]


class Heartbeat(Value):
    """What a node reports. `seq` rises by at least one with each message of a node."""

    attempt_id: Identifier
    fence: int = Field(ge=1)
    node_rank: int = Field(ge=0)
    seq: int = Field(ge=1)
    phase: Phase
    step: int | None = Field(default=None, ge=0, description="optimiser steps finished, once known")
    resumed_from_step: int | None = Field(default=None, ge=0, description="0 for a fresh start, once known")
    first_step_at: datetime | None = Field(default=None, description="when this attempt's first new step was finished")
    metrics: tuple[MetricPoint, ...] = Field(default=(), max_length=MAX_METRIC_POINTS)
    logs: tuple[LogLine, ...] = Field(default=(), max_length=MAX_LOG_LINES)
    logs_dropped: int = Field(default=0, ge=0, description="lines dropped by the agent's cap since the last heartbeat")
    last_checkpoint_step: int | None = Field(default=None, ge=0)
    corrupt_checkpoints: tuple[CorruptCheckpoint, ...] = Field(default=(), max_length=100)
    notice: Notice | None = None
    exit: ExitReport | None = None


class Command(StrEnum):
    CHECKPOINT = "checkpoint"
    DRAIN = "drain"
    """Checkpoint, upload, register, report the exit, power off."""
    STOP = "stop"
    """Kill the ranks and power off: no checkpoint."""


class Reply(Value):
    """The service's answer. The grant counts from the moment the node *sent* heartbeat `answers_seq`."""

    answers_seq: int = Field(ge=1)
    commands: tuple[Command, ...] = ()
    grant_seconds: float = Field(ge=0)


class CheckpointRegistration(Value):
    """Announces a checkpoint that is complete in the bucket and was read again and hashed.

    Repeating it with the same digest is success; with another digest it is 409 `checkpoint_conflict`.
    """

    attempt_id: Identifier
    fence: int = Field(ge=1)
    step: int = Field(ge=0)
    manifest_sha256: Sha256
    size_bytes: int = Field(ge=0)
    val_loss: float | None = None
    world_size: int = Field(ge=1)
    tokens: int = Field(default=0, ge=0)
    verified_at: AwareDatetime


class CheckpointReceipt(Value):
    step: int
    fence: int
    is_new: bool
    delete: tuple[Annotated[str, Field(max_length=64)], ...] = Field(
        default=(), description="names of checkpoints (`<step>-<fence>`) that retention lets the node delete now"
    )
