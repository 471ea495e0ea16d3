"""What was seen of a cluster: how, when, and how much it weighs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, StrEnum


class ClusterState(StrEnum):
    ABSENT = "absent"
    """The provider knows no such cluster; not an error."""
    PENDING = "pending"
    """Asked for and not up on every node yet."""
    UP = "up"
    """Every node of the gang exists."""
    DEGRADED = "degraded"
    """Part of the gang is gone. An attempt is the gang, so this is a loss."""
    ENDED = "ended"
    """Every node is gone and the provider still remembers it."""


class Strength(IntEnum):
    """How far an observation is from the machine. A decision may ask for a stronger look instead of judging."""

    CACHED = 1
    FORCED = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """A provisioner's answer about one cluster.

    `is_preempted` is None when the provider does not say why nodes ended. `created_at` and `ended_at` are the
    provider's, for billing. `failure` is the provider's reason for a launch that came to nothing (`no_capacity`, or its words).
    """

    cluster_name: str
    state: ClusterState
    at: datetime
    strength: Strength
    created_at: datetime | None = None
    ended_at: datetime | None = None
    is_preempted: bool | None = None
    failure: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterSummary:
    """One cluster of ours as the provider lists it: by label, for the orphan sweep and the fence floor."""

    cluster_name: str
    job_id: str
    fence: int
    offer_id: str
    num_nodes: int
    created_at: datetime
