"""The clusters of the local cloud and the processes behind them: boot, look, doom, end, forget.

Records are written before an effect (a launch, a doom) and after it, so that a daemon killed anywhere finds every process
again. The caller holds the lock; records are immutable and replaced, so reading one needs none.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from worker.provision.local.boot import SPEC_NAME, BootPlan, make_environment, write_spec
from worker.provision.local.losses import Loss
from worker.provision.local.profile import Profile
from worker.provision.local.records import ClusterRecord, Doom, NodeRecord, RecordStore
from worker.provision.local.sessions import (
    NodeProcess,
    bound_log,
    find_process_by_argument,
    identify_process,
    is_alive,
    kill_session,
    start_node,
)


class Fleet:
    """Clusters by name. `url` is where nodes find their metadata."""

    def __init__(
        self, store: RecordStore, cache: Path, profile: Profile, *, url: str, node_command: Sequence[str]
    ) -> None:
        self._store = store
        self._cache = cache
        self._profile = profile
        self._url = url
        self._node_command = tuple(node_command)
        self._plans: dict[str, BootPlan] = {}
        self._children: list[subprocess.Popen[bytes]] = []
        self.clusters = store.load_clusters()

    def add(self, cluster: ClusterRecord, plan: BootPlan) -> None:
        """A new cluster, to be booted when it is due."""
        self._put(cluster)
        self._plans[cluster.name] = plan

    def drop_plan(self, cluster_name: str) -> None:
        """The cluster is not to boot any more."""
        self._plans.pop(cluster_name, None)

    def reap(self) -> None:
        """Collect children that ended, so that none stays a zombie."""
        self._children = [child for child in self._children if child.poll() is None]

    def find_node(self, cluster_name: str, node_rank: int) -> NodeRecord | None:
        """A node that lives, for its metadata endpoints."""
        cluster = self.clusters.get(cluster_name)
        if cluster is None or not 0 <= node_rank < len(cluster.nodes) or not cluster.nodes[node_rank].is_live:
            return None
        return cluster.nodes[node_rank]

    def refresh(self, cluster_name: str, now: datetime) -> None:
        """A node whose agent is gone has powered off: what its session still holds goes with it."""
        cluster = self.clusters.get(cluster_name)
        for node in cluster.live_nodes if cluster else ():
            process = _process_of(node)
            if process is not None and not is_alive(process):
                self.end_node(cluster_name, node, now)

    def boot_if_due(self, cluster_name: str, now: datetime) -> None:
        cluster = self.clusters[cluster_name]
        plan = self._plans.get(cluster_name)
        if plan is None or now < cluster.boots_at:
            return
        del self._plans[cluster_name]
        if len(cluster.live_nodes) < len(cluster.nodes):
            self.end_all(cluster_name, now, failure=None)  # the market took a part before it was up
            return
        try:
            for node, spec in zip(cluster.nodes, plan.specs, strict=True):
                self._boot_node(cluster_name, node, plan, spec.node_rank)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__  # never the text: it may quote secrets
            self.end_all(cluster_name, now, failure=f"a node could not start: {reason}")
        else:
            self._put(self.clusters[cluster_name].model_copy(update={"up_at": now}))

    def _boot_node(self, cluster_name: str, node: NodeRecord, plan: BootPlan, rank: int) -> None:
        folder = self._store.node_folder(cluster_name, rank)
        spec_path = write_spec(folder, plan.specs[rank])
        metadata_url = f"{self._url}/nodes/{cluster_name}/{rank}"
        environment = make_environment(plan.environment, metadata_url, self._cache)
        child = start_node([*self._node_command, "--spec", str(spec_path)], folder, environment)
        self._children.append(child)
        process = identify_process(child.pid)
        birth = "exited" if process is None else process.birth  # an agent that died at once: the next look ends it
        booted = node.model_copy(update={"pid": child.pid, "birth": birth})
        self._put(self.clusters[cluster_name].with_node(booted))

    def doom(self, loss: Loss, now: datetime) -> None:
        """Write down that the node goes, and when. A notice already out is not moved, but may be cut short."""
        node = self.clusters[loss.cluster_name].nodes[loss.node_rank]
        if node.doom is not None and loss.has_notice:
            return
        wait = timedelta(seconds=self._profile.notice_seconds if loss.has_notice else 0)
        doom = Doom(noticed_at=now, terminate_at=now + wait, has_notice=loss.has_notice)
        self._put(self.clusters[loss.cluster_name].with_node(node.model_copy(update={"doom": doom})))

    def take_doomed(self, cluster: ClusterRecord, now: datetime) -> None:
        for node in cluster.live_nodes:
            if node.doom is not None and node.doom.terminate_at <= now:
                self.end_node(cluster.name, node, now)

    def end_node(self, cluster_name: str, node: NodeRecord, now: datetime) -> bool:
        """Kill the node's session and record its end; False when something of it outlives SIGKILL for now.

        A node under doom counts as preempted however it went: the market had taken it.
        """
        process = _process_of(node)
        if process is not None and not kill_session(process):
            return False
        self.reap()
        ended = node.model_copy(update={"ended_at": now, "is_preempted": node.doom is not None})
        self._put(self.clusters[cluster_name].with_node(ended))
        return True

    def end_all(self, cluster_name: str, now: datetime, failure: str | None) -> None:
        """Roll a launch back: no part of a gang stays."""
        self._put(self.clusters[cluster_name].model_copy(update={"failure": failure}))
        for node in self.clusters[cluster_name].live_nodes:
            self.end_node(cluster_name, node, now)

    def tidy(self, cluster: ClusterRecord, now: datetime) -> None:
        for node in cluster.live_nodes:
            bound_log(self._store.node_folder(cluster.name, node.rank))
        memory = timedelta(seconds=self._profile.remember_seconds)
        if cluster.ended_at is not None and cluster.ended_at + memory <= now:
            self._store.forget_cluster(cluster.name)
            del self.clusters[cluster.name]

    def end_interrupted_launches(self, now: datetime) -> None:
        """A cluster that was not up when the last daemon died: its secrets died too, so its parts are rolled back."""
        for cluster in list(self.clusters.values()):
            if cluster.up_at is not None or not cluster.live_nodes:
                continue
            for node in cluster.live_nodes:
                spec = str(self._store.node_folder(cluster.name, node.rank) / SPEC_NAME)
                stray = _process_of(node) or find_process_by_argument(spec)
                if stray is not None:
                    update = {"pid": stray.pid, "birth": stray.birth}
                    self._put(self.clusters[cluster.name].with_node(node.model_copy(update=update)))
            self.end_all(cluster.name, now, failure="the cloud restarted before the cluster was up")

    def _put(self, cluster: ClusterRecord) -> None:
        self._store.save_cluster(cluster)
        self.clusters[cluster.name] = cluster


def _process_of(node: NodeRecord) -> NodeProcess | None:
    return None if node.pid is None or node.birth is None else NodeProcess(pid=node.pid, birth=node.birth)
