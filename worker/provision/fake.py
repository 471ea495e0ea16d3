"""A provisioner in memory, with scripted faults: deterministic, without processes, safe to share between threads.

It keeps the same contract as the real ones (one test holds all to it) and reads time from the clock that it is given:

    cloud = FakeProvisioner(clock=lambda: now, boot=timedelta(seconds=30))
    cloud.fail_next("launch", ProviderUnavailable("timed out"), has_effect=True)   # time-out after creation
    cloud.freeze_observations(3)                                                   # stale answers
    cloud.lie_about_terminations(2)                                                # "gone", and it is not
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from service.domain.observations import ClusterState, ClusterSummary, Observation, Strength
from service.domain.offers import Market, Offer, Quote
from worker.provision.protocol import LaunchRefused, LaunchRequest, NoCapacity, ProvisionError

Verb = Literal["launch", "observe", "terminate", "list_clusters", "list_offers", "list_quotes", "interrupt"]
DEFAULT_CAPACITY = 1_000_000


@dataclass(frozen=True, kw_only=True)
class FakeNode:
    rank: int
    terminate_at: datetime | None = None
    has_notice: bool = False
    ended_at: datetime | None = None
    is_preempted: bool = False


@dataclass(frozen=True, kw_only=True)
class FakeCluster:
    """One cluster as the fake provider holds it."""

    request: LaunchRequest
    created_at: datetime
    up_at: datetime
    nodes: tuple[FakeNode, ...]

    @property
    def live_nodes(self) -> Sequence[FakeNode]:
        return [node for node in self.nodes if node.ended_at is None]

    @property
    def ended_at(self) -> datetime | None:
        ends = [node.ended_at for node in self.nodes if node.ended_at is not None]
        return max(ends) if len(ends) == len(self.nodes) else None


@dataclass(frozen=True, kw_only=True)
class _Fault:
    error: ProvisionError
    has_effect: bool


def make_fake_offers(zones: Iterable[str] = ("fake-a-1", "fake-a-2", "fake-b-1")) -> list[Offer]:
    """One instance type in each zone and both markets, at $10 on demand."""
    return [
        Offer(
            provider="fake",
            region=zone.rpartition("-")[0],
            zone=zone,
            instance_type="fake.gpu1",
            market=market,
            accelerators="FAKE:1",
            num_cpus=4,
            memory_gib=16.0,
            on_demand_hourly_nano=10_000_000_000,
        )
        for zone in zones
        for market in Market
    ]


class FakeProvisioner:
    """Provisioner and Interruptible. Spot costs 30 % of on-demand until told otherwise; capacity is without bound."""

    def __init__(
        self,
        *,
        clock: Callable[[], datetime],
        offers: Sequence[Offer] | None = None,
        boot: timedelta = timedelta(0),
        notice: timedelta = timedelta(seconds=120),
        memory: timedelta = timedelta(minutes=10),
    ) -> None:
        self._clock = clock
        self._offers = {offer.id: offer for offer in (make_fake_offers() if offers is None else offers)}
        self._boot, self._notice, self._memory = boot, notice, memory
        self._lock = threading.RLock()
        self._clusters: dict[str, FakeCluster] = {}
        self._settled_at: datetime | None = None
        self._prices: dict[str, int] = {}
        self._capacity: dict[str, int] = {}
        self._faults: defaultdict[str, deque[_Fault]] = defaultdict(deque)
        self._frozen: Mapping[str, FakeCluster] = {}
        self._frozen_answers = 0
        self._lies = 0
        self._parts: deque[int] = deque()
        self.launches: list[LaunchRequest] = []
        """Every request that made a cluster, in order."""

    # Scripts

    def set_price(self, offer_id: str, hourly_nano: int) -> None:
        """Any figure, senseless ones included."""
        with self._lock:
            self._prices[offer_id] = hourly_nano

    def set_capacity(self, offer_id: str, instances: int) -> None:
        """Instances in all, running ones included; fewer than run takes none away."""
        with self._lock:
            self._capacity[offer_id] = instances

    def fail_next(self, verb: Verb, error: ProvisionError, *, times: int = 1, has_effect: bool = False) -> None:
        """The next calls of this verb raise. `has_effect`: what was asked is done all the same, and its answer lost."""
        with self._lock:
            self._faults[verb].extend([_Fault(error=error, has_effect=has_effect)] * times)

    def freeze_observations(self, calls: int) -> None:
        """The next calls of observe and list_clusters, forced ones too, tell what is true now, whatever happens."""
        with self._lock:
            self._settle()
            self._frozen, self._frozen_answers = dict(self._clusters), calls

    def lie_about_terminations(self, calls: int) -> None:
        """The next terminates of clusters that live answer True and end nothing."""
        with self._lock:
            self._lies += calls

    def launch_part_next(self, num_nodes: int) -> None:
        """The next cluster launched has only its first nodes: a gang that the provider cut in half."""
        with self._lock:
            self._parts.append(num_nodes)

    def preempt(self, cluster_name: str, ranks: Iterable[int] | None = None) -> None:
        """Take nodes away at once, without notice; all of them by default."""
        self._end(cluster_name, ranks, is_preempted=True)

    def power_off(self, cluster_name: str, ranks: Iterable[int] | None = None) -> None:
        """The agents exited and powered their nodes off."""
        self._end(cluster_name, ranks, is_preempted=False)

    def has_notice(self, cluster_name: str, node_rank: int) -> bool:
        """Whether the node's metadata endpoint shows an interruption notice."""
        with self._lock:
            self._settle()
            cluster = self._clusters.get(cluster_name)
            nodes = cluster.live_nodes if cluster else ()
            return any(node.rank == node_rank and node.has_notice for node in nodes)

    def live_clusters(self) -> Mapping[str, FakeCluster]:
        """What is billed now, whatever the answers say."""
        with self._lock:
            self._settle()
            return {name: cluster for name, cluster in self._clusters.items() if cluster.live_nodes}

    # The protocol

    def launch(self, request: LaunchRequest) -> None:
        with self._lock:
            self._settle()
            fault = self._next_fault("launch")
            if fault is not None and not fault.has_effect:
                raise fault.error
            if request.cluster_name not in self._clusters:
                self._create(request)
            if fault is not None:
                raise fault.error

    def observe(self, cluster_name: str, *, is_forced: bool = False) -> Observation:
        with self._lock:
            self._raise_fault("observe")
            cluster = self._view().get(cluster_name)
            return _observe(cluster_name, cluster, self._clock(), Strength.FORCED if is_forced else Strength.CACHED)

    def terminate(self, cluster_name: str) -> bool:
        with self._lock:
            self._settle()
            fault = self._next_fault("terminate")
            if fault is not None and not fault.has_effect:
                raise fault.error
            cluster = self._clusters.get(cluster_name)
            if cluster is not None and cluster.live_nodes:
                if self._lies:
                    self._lies -= 1
                else:
                    self._end(cluster_name, None, is_preempted=False)
            if fault is not None:
                raise fault.error
            return True

    def list_clusters(self) -> Sequence[ClusterSummary]:
        with self._lock:
            self._raise_fault("list_clusters")
            return [_summarise(cluster) for cluster in self._view().values() if cluster.live_nodes]

    def list_offers(self) -> Sequence[Offer]:
        with self._lock:
            self._raise_fault("list_offers")
            return list(self._offers.values())

    def list_quotes(self) -> Sequence[Quote]:
        with self._lock:
            self._raise_fault("list_quotes")
            now = self._clock()
            return [
                Quote(offer_id=offer.id, at=now, hourly_nano=self._price(offer), source="fake")
                for offer in self._offers.values()
            ]

    def interrupt(self, cluster_name: str, node_rank: int, *, has_notice: bool) -> None:
        with self._lock:
            self._settle()
            self._raise_fault("interrupt")
            cluster = self._clusters.get(cluster_name)
            if cluster is None or node_rank not in {node.rank for node in cluster.live_nodes}:
                raise ProvisionError(f"no node {node_rank} of cluster {cluster_name} is there")
            wait = self._notice if has_notice else timedelta(0)
            doom = {"terminate_at": self._clock() + wait, "has_notice": has_notice}
            self._clusters[cluster_name] = _replace_nodes(cluster, {node_rank}, **doom)
            self._settled_at = None
            self._settle()

    # Inside

    def _create(self, request: LaunchRequest) -> None:
        if request.offer.id not in self._offers:
            raise LaunchRefused(f"there is no offer {request.offer.id!r} in this market")
        running = sum(len(c.live_nodes) for c in self._clusters.values() if c.request.offer.id == request.offer.id)
        if running + len(request.specs) > self._capacity.get(request.offer.id, DEFAULT_CAPACITY):
            raise NoCapacity(f"{request.offer.id} has too few free instances")
        now = self._clock()
        num_up = self._parts.popleft() if self._parts else len(request.specs)
        nodes = tuple(FakeNode(rank=r, ended_at=None if r < num_up else now) for r in range(len(request.specs)))
        cluster = FakeCluster(request=request, created_at=now, up_at=now + self._boot, nodes=nodes)
        self._clusters[request.cluster_name] = cluster
        self.launches.append(request)

    def _end(self, cluster_name: str, ranks: Iterable[int] | None, *, is_preempted: bool) -> None:
        with self._lock:
            self._settle()
            cluster = self._clusters[cluster_name]
            live = {node.rank for node in cluster.live_nodes}
            chosen = live if ranks is None else live & set(ranks)
            ended = _replace_nodes(cluster, chosen, ended_at=self._clock(), is_preempted=is_preempted)
            self._clusters[cluster_name] = ended
            self._settled_at = self._settled_at if self._memory else None

    def _settle(self) -> None:
        """Let what the clock has passed take effect: notices that ran out, ended clusters that are forgotten."""
        now = self._clock()
        if now == self._settled_at:
            return  # a thousand clusters are not walked again for every call of one instant
        self._settled_at = now
        for name, cluster in list(self._clusters.items()):
            for node in cluster.live_nodes:
                if node.terminate_at is not None and node.terminate_at <= now:
                    taken = {"ended_at": node.terminate_at, "is_preempted": True}
                    self._clusters[name] = _replace_nodes(self._clusters[name], {node.rank}, **taken)
            ended_at = self._clusters[name].ended_at
            if ended_at is not None and ended_at + self._memory <= now:
                del self._clusters[name]

    def _view(self) -> Mapping[str, FakeCluster]:
        self._settle()
        if self._frozen_answers == 0:
            return self._clusters
        self._frozen_answers -= 1
        return self._frozen

    def _price(self, offer: Offer) -> int:
        usual = offer.on_demand_hourly_nano * 3 // 10 if offer.market is Market.SPOT else offer.on_demand_hourly_nano
        return self._prices.get(offer.id, usual)

    def _next_fault(self, verb: Verb) -> _Fault | None:
        return self._faults[verb].popleft() if self._faults[verb] else None

    def _raise_fault(self, verb: Verb) -> None:
        fault = self._next_fault(verb)
        if fault is not None:
            raise fault.error


def _replace_nodes(cluster: FakeCluster, ranks: set[int], **changes: object) -> FakeCluster:
    nodes = tuple(replace(node, **changes) if node.rank in ranks else node for node in cluster.nodes)  # type: ignore[arg-type]
    return replace(cluster, nodes=nodes)


def _observe(cluster_name: str, cluster: FakeCluster | None, now: datetime, strength: Strength) -> Observation:
    if cluster is None:
        return Observation(cluster_name=cluster_name, state=ClusterState.ABSENT, at=now, strength=strength)
    gone = [node for node in cluster.nodes if node.ended_at is not None]
    if len(gone) == len(cluster.nodes):
        state = ClusterState.ENDED
    elif gone:
        state = ClusterState.DEGRADED
    else:
        state = ClusterState.PENDING if now < cluster.up_at else ClusterState.UP
    return Observation(
        cluster_name=cluster_name,
        state=state,
        at=now,
        strength=strength,
        created_at=cluster.created_at,
        ended_at=cluster.ended_at,
        is_preempted=any(node.is_preempted for node in gone) if gone else None,
    )


def _summarise(cluster: FakeCluster) -> ClusterSummary:
    return ClusterSummary(
        cluster_name=cluster.request.cluster_name,
        job_id=cluster.request.job_id,
        fence=cluster.request.fence,
        offer_id=cluster.request.offer.id,
        num_nodes=len(cluster.nodes),
        created_at=cluster.created_at,
    )
