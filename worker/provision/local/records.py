"""What the local cloud knows of its clusters, as values and as files that survive its death.

`DIR/clusters/<name>/cluster.json` appears and changes by rename. Nothing secret is written: environments live in memory
until the nodes start and in the nodes themselves.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, Field

from service.domain.observations import ClusterState
from training.protocol.base import Name, Value
from worker.provision.local.profile import Shock


class Doom(Value):
    """The market's decision to take a node: by SIGKILL at `terminate_at`, told before it when `has_notice`."""

    noticed_at: AwareDatetime
    terminate_at: AwareDatetime
    has_notice: bool


class NodeRecord(Value):
    """One node. `pid` leads its session; with its birth mark it names the process for ever, whatever reuses the number."""

    rank: int = Field(ge=0)
    pid: int | None = None
    birth: str | None = None
    doom: Doom | None = None
    ended_at: AwareDatetime | None = None
    is_preempted: bool = False

    @property
    def is_live(self) -> bool:
        return self.ended_at is None


class ClusterRecord(Value):
    name: Name
    job_id: Annotated[str, Field(max_length=64)]
    fence: int
    offer_id: Annotated[str, Field(max_length=255)]
    created_at: AwareDatetime
    boots_at: AwareDatetime
    up_at: AwareDatetime | None = None
    failure: str | None = None
    nodes: tuple[NodeRecord, ...] = Field(min_length=1)

    @property
    def live_nodes(self) -> Sequence[NodeRecord]:
        return [node for node in self.nodes if node.is_live]

    @property
    def state(self) -> ClusterState:
        num_live = len(self.live_nodes)
        if num_live == 0:
            return ClusterState.ENDED
        if num_live < len(self.nodes):
            return ClusterState.DEGRADED
        return ClusterState.PENDING if self.up_at is None else ClusterState.UP

    @property
    def ended_at(self) -> AwareDatetime | None:
        """When its last node went; None while one lives."""
        ends = [node.ended_at for node in self.nodes if node.ended_at is not None]
        return max(ends) if len(ends) == len(self.nodes) else None

    @property
    def is_preempted(self) -> bool | None:
        """Whether the market took any node; None while none is gone."""
        if all(node.is_live for node in self.nodes):
            return None
        return any(node.is_preempted for node in self.nodes)

    def with_node(self, node: NodeRecord) -> ClusterRecord:
        nodes = tuple(node if known.rank == node.rank else known for known in self.nodes)
        return self.model_copy(update={"nodes": nodes})


class Closure(Value):
    """An offer that takes no launches until then."""

    offer_id: str
    until: AwareDatetime


class MarketRecord(Value):
    """What the market remembers: its start, its seed, the shocks still to come and the offers closed by the past ones."""

    epoch: AwareDatetime
    seed: int
    profile_name: str
    shocks: tuple[Shock, ...] = ()
    closures: tuple[Closure, ...] = ()


class RecordStore:
    """The files under `DIR`. One writer: the daemon holds the folder's lock."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._clusters = folder / "clusters"
        self._clusters.mkdir(mode=0o700, parents=True, exist_ok=True)

    def cluster_folder(self, cluster_name: str) -> Path:
        return self._clusters / cluster_name

    def node_folder(self, cluster_name: str, rank: int) -> Path:
        return self.cluster_folder(cluster_name) / f"node-{rank}"

    def load_market(self) -> MarketRecord | None:
        path = self._folder / "market.json"
        return MarketRecord.model_validate_json(path.read_bytes()) if path.exists() else None

    def save_market(self, record: MarketRecord) -> None:
        write_atomically(self._folder / "market.json", record.model_dump_json(indent=1))

    def load_clusters(self) -> dict[str, ClusterRecord]:
        """Every recorded cluster; a folder whose record was never written started nothing, and is removed."""
        clusters: dict[str, ClusterRecord] = {}
        for folder in self._clusters.iterdir():
            path = folder / "cluster.json"
            if path.exists():
                clusters[folder.name] = ClusterRecord.model_validate_json(path.read_bytes())
            else:
                shutil.rmtree(folder, ignore_errors=True)
        return clusters

    def save_cluster(self, record: ClusterRecord) -> None:
        folder = self.cluster_folder(record.name)
        folder.mkdir(exist_ok=True)
        write_atomically(folder / "cluster.json", record.model_dump_json(indent=1))

    def forget_cluster(self, cluster_name: str) -> None:
        """Remove its record first, so that a removal cut short is finished at the next start."""
        folder = self.cluster_folder(cluster_name)
        (folder / "cluster.json").unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` by a file that only its owner can read, whole or not at all. Errors: OSError."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
