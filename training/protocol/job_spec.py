"""The job spec: what a user writes, submits and may submit again.

Exactly one of `train` (the bundled runtime) and `run` (any command) says what the ranks do.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Self

from pydantic import AfterValidator, AwareDatetime, Field, SecretStr, model_validator

from training.protocol.base import Name, Seconds, Sha256, Text, Usd, Value
from training.protocol.train_spec import TrainSpec

MAX_NODES = 64
MAX_RANKS_PER_NODE = 16

EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
EnvValue = Annotated[Text, Field(max_length=8192)]

RESERVED_ENV_PREFIX = "GODWIT_"


class Market(StrEnum):
    SPOT = "spot"
    ON_DEMAND = "on-demand"
    AUTO = "auto"


class Resources(Value):
    """Which machines will do. An empty filter admits every offer."""

    num_nodes: int = Field(default=1, ge=1, le=MAX_NODES, description="the gang: all of them or none")
    ranks_per_node: int = Field(default=1, ge=1, le=MAX_RANKS_PER_NODE, description="training processes a node")
    accelerators: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9-]{1,40}:[1-9][0-9]{0,2}$", description="such as H100:8; none for CPU alone"
    )
    market: Market = Field(default=Market.SPOT, description="`auto` takes the cheaper of both")
    max_price: Usd | None = Field(default=None, description="USD per node and hour; the ceiling of what is paid")
    providers: tuple[Name, ...] = Field(default=(), max_length=16, description="only these; none: any")
    regions: tuple[Name, ...] = Field(default=(), max_length=64, description="only these; none: any")
    instance_types: tuple[Name, ...] = Field(default=(), max_length=64, description="only these; none: any")


class BudgetSpec(Value):
    """The job's own cap. Its project's caps apply besides; the tightest rules."""

    cap_usd: Usd = Field(description="the most that the job may cost")


class CheckpointPolicy(Value):
    """When to save, besides on notice and on drain, and what to keep. The last verified one is always kept."""

    every_steps: int | None = Field(default=None, ge=1, le=10_000_000, description="steps between saves")
    every: Seconds | None = Field(default=None, description="seconds between saves; 15 minutes without `every_steps`")
    keep_last: int = Field(default=5, ge=1, le=1000, description="the newest to keep")
    keep_best: int = Field(default=1, ge=0, le=100, description="the best to keep, by validation loss")


class RecoveryLimits(Value):
    """How often a job is relaunched. Preemptions have no limit; infrastructure faults without a kept step between do.

    An error of the user's code is never relaunched.
    """

    max_faults: int = Field(default=5, ge=0, le=1000, description="faults in a row without a kept step")


def _relative_glob(pattern: str) -> str:
    path = PurePosixPath(pattern)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError("must be relative to the working directory, without '..'")
    return pattern


OutputGlob = Annotated[Text, Field(min_length=1, max_length=512), AfterValidator(_relative_glob)]


class OnDeadline(StrEnum):
    CONTINUE = "continue"
    STOP = "stop"


class JobSpec(Value):
    """One training job. Errors: pydantic's ValidationError, one entry a field."""

    name: Name = Field(description="what it is called; need not be unique")
    train: TrainSpec | None = Field(default=None, description="the bundled runtime; this or `run`")
    run: Annotated[Text, Field(min_length=1, max_length=65_536)] | None = Field(
        default=None, description="a shell command, started on every rank; this or `train`"
    )
    setup: Annotated[Text, Field(max_length=65_536)] | None = Field(
        default=None, description="a shell command, run once on every node before the ranks"
    )
    workdir: Sha256 | None = Field(
        default=None, description="digest of an uploaded bundle; the CLI takes a folder here"
    )
    env: dict[EnvName, EnvValue] = Field(default_factory=dict, max_length=256, description="environment of the ranks")
    secrets: dict[EnvName, SecretStr] = Field(default_factory=dict, max_length=64, description="write-only environment")
    outputs: tuple[OutputGlob, ...] = Field(default=(), max_length=64, description="files kept at the end, by pattern")
    resources: Resources = Field(default=Resources(), description="which machines will do, and how many")
    budget: BudgetSpec | None = Field(default=None, description="a cap of its own; none: the project's alone")
    deadline: AwareDatetime | None = Field(default=None, description="when it should have ended")
    on_deadline: OnDeadline = Field(
        default=OnDeadline.CONTINUE, description="what a missed deadline does, besides its event"
    )
    checkpoint: CheckpointPolicy = Field(default=CheckpointPolicy(), description="when to save, and what to keep")
    limits: RecoveryLimits = Field(default=RecoveryLimits(), description="how often it is relaunched")
    labels: dict[Name, Annotated[Text, Field(max_length=256)]] = Field(
        default_factory=dict, max_length=32, description="your own notes on the job"
    )

    @model_validator(mode="after")
    def _one_of_train_and_run(self) -> Self:
        if (self.train is None) == (self.run is None):
            raise ValueError("give exactly one of 'train' and 'run'")
        if self.train is not None and self.workdir is not None:
            raise ValueError("'workdir' goes with 'run'; the bundled runtime takes its data from 'train.data'")
        return self

    @model_validator(mode="after")
    def _no_reserved_names(self) -> Self:
        for field, names in (("env", self.env), ("secrets", self.secrets)):
            for name in names:
                if name.startswith(RESERVED_ENV_PREFIX):
                    raise ValueError(f"{field}.{name}: names that start with {RESERVED_ENV_PREFIX} are reserved")
        if both := sorted(set(self.env) & set(self.secrets)):
            raise ValueError(f"{', '.join(both)}: named in both 'env' and 'secrets'")
        return self

    @property
    def world_size(self) -> int:
        """Ranks in all."""
        return self.resources.num_nodes * self.resources.ranks_per_node

    def is_past_deadline(self, now: datetime) -> bool:
        return self.deadline is not None and now >= self.deadline
