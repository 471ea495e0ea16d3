"""What the reconciler asks of a provider, and no more.

Every verb is idempotent by cluster name, and none blocks until a machine is up: launches are started, then observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from service.domain.observations import ClusterSummary, Observation
from service.domain.offers import Offer, Quote
from training.protocol.launch_spec import LaunchSpec


class ProvisionError(Exception):
    """A provider's refusal or failure. The message is shown to users: no credentials in it."""


class NoCapacity(ProvisionError):
    """The offer exists and has no machine now."""


class ProviderUnavailable(ProvisionError):
    """The provider did not answer, or answered 5xx or a throttle: nothing is known; try again later."""


class LaunchRefused(ProvisionError):
    """The request itself is at fault (quota, permissions, unknown shape); the same request fails again."""


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """One cluster: equal nodes of one offer, all or nothing. `specs` has one launch spec a node, by node rank.

    `environment` holds the node token and the job's secrets; it reaches the nodes' environment and no log or listing.
    `ceiling_hourly_nano` is the most that a node and hour may cost: the provider is told where it can be.
    """

    cluster_name: str
    job_id: str
    fence: int
    offer: Offer
    ceiling_hourly_nano: int
    specs: Sequence[LaunchSpec]
    environment: Mapping[str, str] = field(repr=False)


class Provisioner(Protocol):
    """Errors of every verb: ProviderUnavailable."""

    def launch(self, request: LaunchRequest) -> None:
        """Start the cluster. A name that exists is success and changes nothing. Errors: NoCapacity, LaunchRefused."""
        ...

    def observe(self, cluster_name: str, *, is_forced: bool = False) -> Observation:
        """The cluster as it is; absent is a state, not an error."""
        ...

    def terminate(self, cluster_name: str) -> bool:
        """End the cluster; True once the provider confirms that no node of it is left. Absent is True."""
        ...

    def list_clusters(self) -> Sequence[ClusterSummary]:
        """Every cluster that carries our label, whoever launched it."""
        ...

    def list_offers(self) -> Sequence[Offer]:
        """What can be asked for."""
        ...

    def list_quotes(self) -> Sequence[Quote]:
        """The price of every offer now."""
        ...


@runtime_checkable
class Interruptible(Protocol):
    """A provisioner that can take a node away on purpose, for drills."""

    def interrupt(self, cluster_name: str, node_rank: int, *, has_notice: bool) -> None:
        """Preempt one node, after an interruption notice or by SIGKILL at once. Errors: ProvisionError when absent."""
        ...
