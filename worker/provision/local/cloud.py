"""The local cloud: the provider's verbs, and the sweep in which its market takes nodes away.

Time comes in as an argument. Each verb and each sweep runs whole under one lock; reads take none.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from service.domain.observations import ClusterState, ClusterSummary, Observation, Strength
from service.domain.offers import Offer, Quote
from worker.provision.local.boot import NODE_COMMAND, plan_boot
from worker.provision.local.fleet import Fleet
from worker.provision.local.losses import Loss, choose_losses, free_instances, to_market_seconds
from worker.provision.local.market import Market
from worker.provision.local.records import ClusterRecord, MarketRecord, NodeRecord, RecordStore
from worker.provision.local.wire import LaunchBody
from worker.provision.protocol import LaunchRefused, NoCapacity, ProvisionError

QUOTE_SOURCE = "local-market"


class Cloud:
    """Clusters of this machine. One object a folder: the daemon holds the folder's lock."""

    def __init__(
        self, folder: Path, market: Market, now: datetime, *, url: str, node_command: Sequence[str] = NODE_COMMAND
    ) -> None:
        """`url` is where the daemon serves the metadata endpoints. Takes up what an earlier daemon left in `folder`."""
        cache = folder / "cache"
        cache.mkdir(parents=True, exist_ok=True)
        self.market = market
        self._lock = threading.RLock()
        self._store = RecordStore(folder)
        self._market_record = self._open_market(now)
        self._fleet = Fleet(self._store, cache, market.profile, url=url, node_command=node_command)
        self._fleet.end_interrupted_launches(now)

    def launch(self, body: LaunchBody, now: datetime) -> None:
        """Start the cluster unless its name is known. Errors: LaunchRefused, NoCapacity."""
        with self._lock:
            if body.cluster_name in self._fleet.clusters:
                return
            self._check_request(body)
            self._check_capacity(body, now)
            self._fleet.add(self._make_record(body, now), plan_boot(body.specs, body.environment))

    def observe(self, cluster_name: str, now: datetime, *, is_forced: bool) -> Observation:
        """The cluster as the last sweep saw it, or as it is now."""
        if is_forced:
            with self._lock:
                self._fleet.refresh(cluster_name, now)
        strength = Strength.FORCED if is_forced else Strength.CACHED
        cluster = self._fleet.clusters.get(cluster_name)
        if cluster is None:
            return Observation(cluster_name=cluster_name, state=ClusterState.ABSENT, at=now, strength=strength)
        return Observation(
            cluster_name=cluster_name,
            state=cluster.state,
            at=now,
            strength=strength,
            created_at=cluster.created_at,
            ended_at=cluster.ended_at,
            is_preempted=cluster.is_preempted,
            failure=cluster.failure,
        )

    def terminate(self, cluster_name: str, now: datetime) -> bool:
        """Kill every node; True when none is left."""
        with self._lock:
            self._fleet.drop_plan(cluster_name)
            cluster = self._fleet.clusters.get(cluster_name)
            ended = [self._fleet.end_node(cluster_name, node, now) for node in cluster.live_nodes] if cluster else []
            return all(ended)

    def list_clusters(self) -> Sequence[ClusterSummary]:
        """Clusters with a node that lives."""
        return [
            ClusterSummary(
                cluster_name=cluster.name,
                job_id=cluster.job_id,
                fence=cluster.fence,
                offer_id=cluster.offer_id,
                num_nodes=len(cluster.nodes),
                created_at=cluster.created_at,
            )
            for cluster in list(self._fleet.clusters.values())
            if cluster.live_nodes
        ]

    def list_offers(self) -> Sequence[Offer]:
        return list(self.market.offers.values())

    def list_quotes(self, now: datetime) -> Sequence[Quote]:
        """The prices that hold now, each from when its step began."""
        seconds = to_market_seconds(self.market, self._market_record, now)
        behind = (seconds - self.market.step_start(seconds)) / self.market.profile.time_scale
        at = now - timedelta(seconds=behind)
        return [
            Quote(offer_id=offer.id, at=at, hourly_nano=self.market.price(offer, seconds), source=QUOTE_SOURCE)
            for offer in self.market.offers.values()
        ]

    def interrupt(self, cluster_name: str, node_rank: int, now: datetime, *, has_notice: bool) -> None:
        """Preempt one node on purpose. Errors: ProvisionError when no such node lives."""
        with self._lock:
            if self.find_node(cluster_name, node_rank) is None:
                raise ProvisionError(f"no node {node_rank} of cluster {cluster_name} is there")
            self._fleet.doom(Loss(cluster_name=cluster_name, node_rank=node_rank, has_notice=has_notice), now)
            self._fleet.take_doomed(self._fleet.clusters[cluster_name], now)

    def find_node(self, cluster_name: str, node_rank: int) -> NodeRecord | None:
        """A node that lives, for its metadata endpoints."""
        return self._fleet.find_node(cluster_name, node_rank)

    def find_offer(self, cluster_name: str) -> Offer | None:
        cluster = self._fleet.clusters.get(cluster_name)
        return None if cluster is None else self.market.offers.get(cluster.offer_id)

    def sweep(self, now: datetime) -> None:
        """One pass: see what ended, boot what is due, take what the market wants, forget what is long over."""
        with self._lock:
            self._fleet.reap()
            for name in list(self._fleet.clusters):
                self._fleet.refresh(name, now)
                self._fleet.boot_if_due(name, now)
            self._apply_market(now)
            for cluster in list(self._fleet.clusters.values()):
                self._fleet.take_doomed(cluster, now)
                self._fleet.tidy(self._fleet.clusters[cluster.name], now)

    def _apply_market(self, now: datetime) -> None:
        verdict = choose_losses(self.market, self._market_record, list(self._fleet.clusters.values()), now)
        for loss in verdict.losses:
            self._fleet.doom(loss, now)
        if verdict.market != self._market_record:
            self._store.save_market(verdict.market)
            self._market_record = verdict.market

    def _open_market(self, now: datetime) -> MarketRecord:
        """The market goes on where it was, unless another profile or seed opens a new one."""
        profile, known = self.market.profile, self._store.load_market()
        if known is not None and (known.profile_name, known.seed) == (profile.name, self.market.seed):
            return known
        record = MarketRecord(epoch=now, seed=self.market.seed, profile_name=profile.name, shocks=profile.shocks)
        self._store.save_market(record)
        return record

    def _check_request(self, body: LaunchBody) -> None:
        """Errors: LaunchRefused for what no later time makes possible."""
        num_nodes = len(body.specs)
        if body.offer_id not in self.market.offers:
            raise LaunchRefused(f"there is no offer {body.offer_id!r} in this market")
        if num_nodes > self.market.profile.max_nodes:
            raise LaunchRefused(f"{num_nodes} nodes are more than the quota of {self.market.profile.max_nodes}")
        if [(spec.node_rank, spec.num_nodes) for spec in body.specs] != [(r, num_nodes) for r in range(num_nodes)]:
            raise LaunchRefused("the launch specs are not those of one gang in the order of node ranks")

    def _check_capacity(self, body: LaunchBody, now: datetime) -> None:
        """Errors: NoCapacity when the offer has too few instances now, or costs more than the ceiling."""
        offer = self.market.offers[body.offer_id]
        seconds = to_market_seconds(self.market, self._market_record, now)
        if self.market.price(offer, seconds) > body.ceiling_hourly_nano:
            raise NoCapacity(f"{offer.id} costs more than the ceiling now")
        free = free_instances(self.market, self._market_record, self._fleet.clusters.values(), offer, now)
        if free < len(body.specs):
            raise NoCapacity(f"{offer.id} has {free} free instances; {len(body.specs)} were asked for")

    def _make_record(self, body: LaunchBody, now: datetime) -> ClusterRecord:
        return ClusterRecord(
            name=body.cluster_name,
            job_id=body.job_id,
            fence=body.fence,
            offer_id=body.offer_id,
            created_at=now,
            boots_at=now + timedelta(seconds=self.market.profile.boot_seconds),
            nodes=tuple(NodeRecord(rank=rank) for rank in range(len(body.specs))),
        )
