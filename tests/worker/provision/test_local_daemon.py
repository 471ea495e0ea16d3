"""The local cloud as a process: notices, SIGKILL of whole nodes, its own death, and who may ask it for what."""

from __future__ import annotations

import http.client
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from service.domain.observations import ClusterState, Observation
from service.domain.offers import Market, Offer
from tests.worker.provision.clusters import (
    ROOT,
    SECRET,
    Daemon,
    find_dead,
    find_nodes_of,
    make_profile,
    make_request,
    read_node,
    wait_until,
)
from tests.worker.provision.imds import fetch_imds, read_instance_action
from training.protocol.launch_spec import METADATA_URL_ENV
from worker.provision.local.daemon import read_endpoint
from worker.provision.local.profile import Profile
from worker.provision.local.provisioner import LocalProvisioner
from worker.provision.local.wire import ENDPOINT_FILE
from worker.provision.protocol import LaunchRefused, ProviderUnavailable

StartDaemon = Callable[[Profile], Daemon]


def spot_offer(daemon: Daemon) -> Offer:
    return next(offer for offer in daemon.provisioner.list_offers() if offer.market is Market.SPOT)


def launch_up(daemon: Daemon, name: str, *, num_nodes: int = 1, behaviour: str = "wait") -> None:
    daemon.provisioner.launch(make_request(spot_offer(daemon), name, num_nodes=num_nodes, behaviour=behaviour))
    await_state(daemon, name, ClusterState.UP)


def await_state(daemon: Daemon, name: str, state: ClusterState) -> Observation:
    wait_until(lambda: daemon.provisioner.observe(name).state is state, f"{name} {state}")
    return daemon.provisioner.observe(name)


def test_a_shock_with_notice_shows_at_the_node_s_metadata_then_kills(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(make_profile(shocks=[{"after_up_seconds": 0.5, "has_notice": True}], notice_seconds=1.5))
    launch_up(daemon, "noticed")
    node = read_node(daemon.folder, "noticed")
    url = node["environment"][METADATA_URL_ENV]
    action = wait_until(lambda: read_instance_action(url), "the interruption notice")
    assert action["action"] == "terminate"
    assert daemon.provisioner.observe("noticed", is_forced=True).state is ClusterState.UP
    assert "noticeTime" in fetch_imds(url, "events/recommendations/rebalance").json()
    assert await_state(daemon, "noticed", ClusterState.ENDED).is_preempted is True
    assert find_dead(node["pids"]) == node["pids"]
    assert fetch_imds_status(url) == 404, "a node that is gone has no metadata"


def fetch_imds_status(url: str) -> int:
    with httpx.Client(trust_env=False) as client:
        return client.put(f"{url}/latest/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": "1"}).status_code


def test_a_kill_takes_the_whole_tree(shared_daemon: Daemon) -> None:
    launch_up(shared_daemon, "tree", behaviour="tree")
    launch_up(shared_daemon, "bystander")
    pids = read_node(shared_daemon.folder, "tree")["pids"]
    assert len(pids) == 4
    assert len({os.getpgid(pid) for pid in pids}) == 3
    shared_daemon.provisioner.interrupt("tree", 0, has_notice=False)
    assert find_dead(pids) == pids
    assert await_state(shared_daemon, "tree", ClusterState.ENDED).is_preempted is True
    assert shared_daemon.provisioner.observe("bystander", is_forced=True).state is ClusterState.UP
    assert shared_daemon.provisioner.terminate("bystander")


def test_what_an_agent_leaves_behind_goes_with_it(shared_daemon: Daemon) -> None:
    launch_up(shared_daemon, "left", behaviour="tree")
    pids = read_node(shared_daemon.folder, "left")["pids"]
    os.kill(pids[0], signal.SIGKILL)
    assert await_state(shared_daemon, "left", ClusterState.ENDED).is_preempted is False
    in_session = [pid for pid in pids[:3] if pid not in find_dead(pids)]
    assert in_session == []
    for pid in set(pids) - set(find_dead(pids)):
        os.kill(pid, signal.SIGKILL)  # it left the session, and its parent was gone before anyone looked


def test_an_agent_that_exits_at_once_ends_its_cluster(shared_daemon: Daemon) -> None:
    shared_daemon.provisioner.launch(make_request(spot_offer(shared_daemon), "brief", behaviour="exit"))
    assert await_state(shared_daemon, "brief", ClusterState.ENDED).is_preempted is False


def test_kill_9_of_the_daemon_loses_and_doubles_nothing(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(make_profile(notice_seconds=3600))
    launch_up(daemon, "kept", num_nodes=2)
    daemon.provisioner.interrupt("kept", 0, has_notice=True)
    before, offer = daemon.provisioner.observe("kept"), spot_offer(daemon)
    nodes = [read_node(daemon.folder, "kept", rank) for rank in range(2)]
    pids = [node["pids"][0] for node in nodes]
    daemon.kill()
    assert find_dead(pids) == []
    with pytest.raises(ProviderUnavailable):
        daemon.provisioner.observe("kept")

    daemon.start()
    daemon.provisioner.launch(make_request(offer, "kept", num_nodes=2))
    seen = daemon.provisioner.observe("kept", is_forced=True)
    assert (seen.state, seen.created_at) == (ClusterState.UP, before.created_at)
    assert sorted(find_nodes_of(daemon.folder / "clusters" / "kept")) == sorted(pids)
    urls = [node["environment"][METADATA_URL_ENV] for node in nodes]
    assert [read_instance_action(url) is not None for url in urls] == [True, False], (
        "the notice is still out, and there"
    )
    assert daemon.provisioner.terminate("kept")
    assert find_dead(pids) == pids


def test_a_node_that_died_while_the_daemon_was_down_is_seen(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(make_profile())
    launch_up(daemon, "lost")
    (pid,) = read_node(daemon.folder, "lost")["pids"]
    daemon.kill()
    os.kill(pid, signal.SIGKILL)
    daemon.start()
    assert await_state(daemon, "lost", ClusterState.ENDED).is_preempted is False


def test_a_launch_cut_off_by_the_daemon_s_death_is_told_as_a_failure(start_daemon: StartDaemon) -> None:
    daemon = start_daemon(make_profile(boot_seconds=3600))
    daemon.provisioner.launch(make_request(spot_offer(daemon), "cut"))
    assert daemon.provisioner.observe("cut").state is ClusterState.PENDING
    daemon.kill()
    daemon.start()
    seen = daemon.provisioner.observe("cut")
    assert (seen.state, seen.is_preempted) == (ClusterState.ENDED, False)
    assert seen.failure is not None
    assert "restarted" in seen.failure


def test_a_gang_whose_second_node_cannot_start_has_no_first(shared_daemon: Daemon) -> None:
    in_the_way = shared_daemon.folder / "clusters" / "half" / "node-1"
    in_the_way.parent.mkdir()
    in_the_way.write_text("a file where the second node's folder goes")
    shared_daemon.provisioner.launch(make_request(spot_offer(shared_daemon), "half", num_nodes=2))
    seen = await_state(shared_daemon, "half", ClusterState.ENDED)
    assert seen.failure is not None
    assert "could not start" in seen.failure
    assert seen.is_preempted is False
    assert find_nodes_of(shared_daemon.folder / "clusters" / "half") == []


def test_a_node_s_world_is_small_and_its_gang_meets_on_loopback(
    shared_daemon: Daemon,
) -> None:
    launch_up(shared_daemon, "gang", num_nodes=2)
    nodes = [read_node(shared_daemon.folder, "gang", rank) for rank in range(2)]
    environment = nodes[0]["environment"]
    expected = {"API_KEY", "NODE_BEHAVIOUR", "PATH", "GODWIT_CACHE_DIR", METADATA_URL_ENV, "GCE_METADATA_HOST"}
    assert expected <= set(environment)
    allowed = {"HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "PYTHONPATH", "GODWIT_AZURE_METADATA_ENDPOINT"}
    assert set(environment) - expected <= allowed
    assert nodes[0]["rendezvous"] == nodes[1]["rendezvous"]
    host, _, port = nodes[0]["rendezvous"].partition(":")
    assert host == "127.0.0.1"
    assert int(port) > 0
    shared_daemon.provisioner.terminate("gang")


def test_secrets_are_in_no_file_and_no_argument(shared_daemon: Daemon) -> None:
    launch_up(shared_daemon, "quiet")
    node_file = shared_daemon.folder / "clusters" / "quiet" / "node-0" / "node.json"
    assert SECRET in node_file.read_text(), "the test's own node writes its environment down"
    written = [path for path in shared_daemon.folder.rglob("*") if path.is_file() and path.name != "node.json"]
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []
    for name in (ENDPOINT_FILE, "clusters/quiet/cluster.json", "clusters/quiet/node-0/launch_spec.json"):
        assert stat.S_IMODE((shared_daemon.folder / name).stat().st_mode) == 0o600
    shared_daemon.provisioner.terminate("quiet")


def test_control_verbs_need_the_token_and_bounded_bodies(shared_daemon: Daemon) -> None:
    endpoint = read_endpoint(shared_daemon.folder)
    assert endpoint is not None
    token = {"Authorization": f"Bearer {endpoint.token}"}
    with httpx.Client(base_url=endpoint.url, trust_env=False) as client:
        assert client.get("/v1/clusters").status_code == 401
        assert client.get("/v1/clusters", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert client.get("/v1/clusters", headers=token).status_code == 200
        assert client.get("/v1/clusters/..%2f..%2fetc", headers=token).status_code in (404, 422)
        assert client.get("/v1/clusters/A_b", headers=token).status_code == 422
        assert client.post("/v1/clusters", headers=token, content=iter([b"{}"])).status_code == 411
        bad = client.post("/v1/clusters", headers=token, json={"environment": {"bad name": SECRET}})
        assert bad.status_code == 422
        assert "environment" in bad.text
        assert SECRET not in bad.text
    connection = http.client.HTTPConnection("127.0.0.1", int(endpoint.url.rpartition(":")[2]), timeout=10)
    connection.request("POST", "/v1/clusters", headers={**token, "Content-Length": str(2**30)})
    assert connection.getresponse().status == 413, "refused by its length, before it is read"
    connection.close()


def test_metadata_needs_a_session_token_of_that_node(shared_daemon: Daemon) -> None:
    launch_up(shared_daemon, "meta", num_nodes=2)
    url = f"{shared_daemon.url}/nodes/meta"
    item = "latest/meta-data/instance-type"
    with httpx.Client(trust_env=False) as client:
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        token = {"X-aws-ec2-metadata-token": client.put(f"{url}/0/latest/api/token", headers=ttl).text}
        assert client.get(f"{url}/0/{item}", headers=token).text == "sim.gpu1"
        assert client.get(f"{url}/1/{item}", headers=token).status_code == 401
        assert client.get(f"{url}/0/{item}").status_code == 401
        assert client.put(f"{url}/0/latest/api/token").status_code == 400
        assert client.get(f"{url}/0/computeMetadata/v1/instance/preempted").status_code == 404, (
            "this machine is an AWS one"
        )
    shared_daemon.provisioner.terminate("meta")


@pytest.mark.parametrize("kind", ["gce", "azure"])
def test_other_clouds_metadata_have_their_own_shape(start_daemon: StartDaemon, kind: str) -> None:
    daemon = start_daemon(make_profile(metadata=kind, notice_seconds=3600))
    launch_up(daemon, "node")
    environment = read_node(daemon.folder, "node")["environment"]
    with httpx.Client(trust_env=False) as client:

        def read() -> object:
            if kind == "gce":
                url = f"http://{environment['GCE_METADATA_HOST']}/computeMetadata/v1/instance/preempted"
                assert client.get(url).status_code == 403
                return client.get(url, headers={"Metadata-Flavor": "Google"}).text
            url = f"{environment['GODWIT_AZURE_METADATA_ENDPOINT']}/metadata/scheduledevents?api-version=2020-07-01"
            assert client.get(url).status_code == 400
            return [event["EventType"] for event in client.get(url, headers={"Metadata": "true"}).json()["Events"]]

        assert read() == ("FALSE" if kind == "gce" else [])
        daemon.provisioner.interrupt("node", 0, has_notice=True)
        assert read() == ("TRUE" if kind == "gce" else ["Preempt"])


def test_requests_that_no_later_time_makes_possible_are_refused(shared_daemon: Daemon) -> None:
    offer = spot_offer(shared_daemon)
    with pytest.raises(LaunchRefused, match="quota"):
        shared_daemon.provisioner.launch(make_request(offer, "huge", num_nodes=65))
    with pytest.raises(LaunchRefused, match="cluster_name"):
        shared_daemon.provisioner.launch(make_request(offer, "../up"))


def test_without_a_daemon_nothing_is_known(tmp_path: Path) -> None:
    provisioner = LocalProvisioner(tmp_path)
    with pytest.raises(ProviderUnavailable):
        provisioner.observe("any")
    provisioner.close()


def test_one_daemon_a_folder_and_bad_profiles_end_with_a_sentence(shared_daemon: Daemon) -> None:
    for arguments, said in (
        (["--data", str(shared_daemon.folder)], "another local cloud"),
        (["--data", str(shared_daemon.folder / "x"), "--profile", "nope"], "no market profile"),
    ):
        command = [sys.executable, "-m", "worker.provision.local", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=30)  # noqa: S603
        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr
