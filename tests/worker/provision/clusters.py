"""Requests, profiles and a real daemon for the tests of provisioners."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil

from service.domain.offers import Offer
from training.protocol.job_spec import CheckpointPolicy
from training.protocol.launch_spec import AgentTerms, LaunchSpec
from worker.provision.local.daemon import read_endpoint
from worker.provision.local.profile import Profile
from worker.provision.local.provisioner import LocalProvisioner
from worker.provision.local.wire import LaunchBody
from worker.provision.protocol import LaunchRequest

ROOT = Path(__file__).parents[3]
NODE_COMMAND = (sys.executable, "-S", "-P", str(Path(__file__).with_name("node_script.py")))
PATIENCE_SECONDS = 20
SECRET = "correct-horse-battery"  # noqa: S105 - to look for where it must not be


def make_profile(**changes: Any) -> Profile:
    values: dict[str, Any] = {
        "name": "test",
        "zones": [{"name": "local-a-1", "region": "local-a"}, {"name": "local-b-1", "region": "local-b"}],
        "shapes": [{"instance_type": "sim.gpu1", "num_cpus": 2, "memory_gib": 4, "on_demand_hourly_usd": "5"}],
        "supply": {"kind": "steady", "instances": 8},
        "boot_seconds": 0,
        "notice_seconds": 1,
    }
    return Profile.model_validate({**values, **changes})


def make_specs(num_nodes: int, fence: int = 1) -> list[LaunchSpec]:
    terms = AgentTerms(
        heartbeat=timedelta(seconds=1),
        drain=timedelta(seconds=10),
        notice_poll=timedelta(seconds=1),
        term_grace=timedelta(seconds=1),
    )
    return [
        LaunchSpec(
            job_id="job-1",
            job_name="job",
            attempt_id=f"attempt-{fence}",
            fence=fence,
            node_rank=rank,
            num_nodes=num_nodes,
            ranks_per_node=1,
            rendezvous="node-0:0",
            service_url="http://127.0.0.1:1",
            checkpoint_root="file:///nowhere",
            run="true",
            checkpoint=CheckpointPolicy(),
            terms=terms,
        )
        for rank in range(num_nodes)
    ]


def make_request(
    offer: Offer, name: str = "gdw-job-1", *, num_nodes: int = 1, behaviour: str = "wait", fence: int = 1
) -> LaunchRequest:
    return LaunchRequest(
        cluster_name=name,
        job_id="job-1",
        fence=fence,
        offer=offer,
        ceiling_hourly_nano=offer.on_demand_hourly_nano,
        specs=make_specs(num_nodes, fence),
        environment={"NODE_BEHAVIOUR": behaviour, "API_KEY": SECRET},
    )


def make_body(offer: Offer, name: str = "gdw-job-1", *, num_nodes: int = 1, behaviour: str = "wait") -> LaunchBody:
    """A launch for a cloud that runs in the test's own process."""
    request = make_request(offer, name, num_nodes=num_nodes, behaviour=behaviour)
    return LaunchBody(
        cluster_name=name,
        job_id=request.job_id,
        fence=request.fence,
        offer_id=offer.id,
        ceiling_hourly_nano=request.ceiling_hourly_nano,
        specs=tuple(request.specs),
        environment=dict(request.environment),
    )


def wait_until(is_done: Callable[[], Any], what: str = "the condition") -> Any:
    """Poll a real process, within bounds; the truthy answer."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if answer := is_done():
            return answer
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come about in {PATIENCE_SECONDS} s")


def read_node(folder: Path, cluster_name: str, rank: int = 0) -> dict[str, Any]:
    """What the test's node wrote of itself, once it did."""
    path = folder / "clusters" / cluster_name / f"node-{rank}" / "node.json"
    wait_until(path.exists, f"{path.name} of node {rank}")
    return json.loads(path.read_text())


def find_dead(pids: list[int]) -> list[int]:
    return [pid for pid in pids if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE]


class Daemon:
    """The local cloud as a process of its own."""

    def __init__(self, folder: Path, profile: Profile) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._profile_path = folder / "profile.json"
        self._profile_path.write_text(profile.model_dump_json())
        self._process: subprocess.Popen[bytes] | None = None
        self.provisioner = LocalProvisioner(folder)

    def start(self) -> None:
        options = ["--data", str(self.folder), "--profile", str(self._profile_path), "--node-command", *NODE_COMMAND]
        command = [sys.executable, "-m", "worker.provision.local", *options]
        with (self.folder / "daemon.log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)  # noqa: S603
        wait_until(self._is_serving, "the daemon's answer")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """End every cluster and the daemon; its exit status."""
        assert self._process is not None
        if self._process.poll() is not None:
            self.start()
        for summary in self.provisioner.list_clusters():
            self.provisioner.terminate(summary.cluster_name)
        self.provisioner.close()
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(PATIENCE_SECONDS)

    @property
    def url(self) -> str:
        endpoint = read_endpoint(self.folder)
        assert endpoint is not None
        return endpoint.url

    def _is_serving(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "daemon.log").read_text()
        endpoint = read_endpoint(self.folder)
        if endpoint is None or endpoint.pid != self._process.pid:
            return False
        return len(self.provisioner.list_offers()) > 0


def find_nodes_of(cluster_folder: Path) -> list[int]:
    """Every process started as a node of this cluster, by its launch spec's path."""
    found: list[int] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(part.startswith(f"{cluster_folder}/node-") for part in process.cmdline()):
                found.append(process.pid)
    return found
