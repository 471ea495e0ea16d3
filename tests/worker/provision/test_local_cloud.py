"""The local cloud in the test's own process, with time handed in: what takes minutes passes at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from service.domain.observations import ClusterState
from service.domain.offers import Market as MarketKind
from service.domain.offers import Offer
from tests.worker.provision.clusters import NODE_COMMAND, find_dead, make_body, make_profile, read_node
from worker.provision.local.cloud import Cloud
from worker.provision.local.market import make_market
from worker.provision.local.profile import Profile
from worker.provision.local.records import ClusterRecord, RecordStore
from worker.provision.local.sessions import LOG_NAME, MAX_LOG_BYTES
from worker.provision.protocol import NoCapacity

START = datetime(2030, 1, 1, tzinfo=UTC)
NAME = "gdw-job-1"


def open_cloud(folder: Path, profile: Profile) -> Cloud:
    return Cloud(folder, make_market(profile, 0), START, url="http://127.0.0.1:1", node_command=NODE_COMMAND)


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    opened = open_cloud(tmp_path, make_profile(boot_seconds=30, notice_seconds=120, remember_seconds=600))
    yield opened
    opened.terminate(NAME, START)


@pytest.fixture
def offer(cloud: Cloud) -> Offer:
    return next(offer for offer in cloud.list_offers() if offer.market is MarketKind.SPOT)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def state_at(cloud: Cloud, now: datetime) -> ClusterState:
    cloud.sweep(now)
    return cloud.observe(NAME, now, is_forced=False).state


def test_a_cluster_boots_when_it_is_due_and_is_forgotten_in_the_end(cloud: Cloud, offer: Offer, tmp_path: Path) -> None:
    cloud.launch(make_body(offer, NAME), START)
    assert state_at(cloud, after(29)) is ClusterState.PENDING
    assert state_at(cloud, after(30)) is ClusterState.UP
    assert cloud.terminate(NAME, after(100))
    assert state_at(cloud, after(699)) is ClusterState.ENDED
    assert state_at(cloud, after(700)) is ClusterState.ABSENT
    assert list((tmp_path / "clusters").iterdir()) == []


def test_a_notice_runs_its_whole_time(cloud: Cloud, offer: Offer) -> None:
    cloud.launch(make_body(offer, NAME), START)
    cloud.sweep(after(30))
    cloud.interrupt(NAME, 0, after(40), has_notice=True)
    cloud.interrupt(NAME, 0, after(90), has_notice=True)
    assert state_at(cloud, after(159)) is ClusterState.UP
    assert state_at(cloud, after(160)) is ClusterState.ENDED
    seen = cloud.observe(NAME, after(160), is_forced=False)
    assert (seen.ended_at, seen.is_preempted) == (after(160), True)


def test_a_gang_that_loses_a_part_before_it_is_up_never_starts(cloud: Cloud, offer: Offer, tmp_path: Path) -> None:
    cloud.launch(make_body(offer, NAME, num_nodes=2), START)
    cloud.interrupt(NAME, 1, after(1), has_notice=False)
    assert cloud.observe(NAME, after(1), is_forced=False).state is ClusterState.DEGRADED
    assert state_at(cloud, after(30)) is ClusterState.ENDED
    assert cloud.observe(NAME, after(30), is_forced=False).is_preempted is True
    assert list((tmp_path / "clusters" / NAME).glob("node-*")) == []


def test_capacity_counts_what_runs_and_a_price_above_the_ceiling_is_none(cloud: Cloud, offer: Offer) -> None:
    cloud.launch(make_body(offer, NAME, num_nodes=6), START)
    with pytest.raises(NoCapacity, match="2 free instances; 3 were asked for"):
        cloud.launch(make_body(offer, "second", num_nodes=3), START)
    cheap = make_body(offer, "third").model_copy(update={"ceiling_hourly_nano": 1})
    with pytest.raises(NoCapacity, match="ceiling"):
        cloud.launch(cheap, START)
    assert [summary.cluster_name for summary in cloud.list_clusters()] == [NAME]


def test_a_node_started_but_never_written_down_is_found_and_rolled_back(
    cloud: Cloud, offer: Offer, tmp_path: Path
) -> None:
    """The daemon died between starting the agent and writing its pid."""
    cloud.launch(make_body(offer, NAME), START)
    cloud.sweep(after(30))
    pids = read_node(tmp_path, NAME)["pids"]
    store = RecordStore(tmp_path)
    written: ClusterRecord = store.load_clusters()[NAME]
    node = written.nodes[0].model_copy(update={"pid": None, "birth": None})
    store.save_cluster(written.with_node(node).model_copy(update={"up_at": None}))

    again = open_cloud(tmp_path, make_profile())
    assert find_dead(pids) == pids
    assert again.observe(NAME, START, is_forced=True).state is ClusterState.ENDED


def test_a_pid_given_to_a_stranger_is_not_the_node(cloud: Cloud, offer: Offer, tmp_path: Path) -> None:
    cloud.launch(make_body(offer, NAME), START)
    cloud.sweep(after(30))
    (pid,) = read_node(tmp_path, NAME)["pids"]
    store = RecordStore(tmp_path)
    written = store.load_clusters()[NAME]
    store.save_cluster(written.with_node(written.nodes[0].model_copy(update={"birth": "another boot:1"})))
    again = open_cloud(tmp_path, make_profile())
    assert again.observe(NAME, after(40), is_forced=True).state is ClusterState.ENDED
    assert again.terminate(NAME, after(41))
    assert find_dead([pid]) == [], "nobody kills a process that is not the node's"


def test_the_market_goes_on_where_it_was_and_a_used_shock_stays_used(tmp_path: Path) -> None:
    profile = make_profile(shocks=[{"after_up_seconds": 5, "has_notice": False}])
    cloud = open_cloud(tmp_path, profile)
    offer = next(offer for offer in cloud.list_offers() if offer.market is MarketKind.SPOT)
    cloud.launch(make_body(offer, NAME), START)
    assert state_at(cloud, after(0)) is ClusterState.UP
    assert state_at(cloud, after(5)) is ClusterState.ENDED

    again = open_cloud(tmp_path, profile)
    again.launch(make_body(offer, "second"), after(10))
    again.sweep(after(10))
    again.sweep(after(100))
    assert again.observe("second", after(100), is_forced=True).state is ClusterState.UP
    assert again.list_quotes(after(100)) == cloud.list_quotes(after(100))
    again.terminate("second", after(100))


def test_an_agent_s_output_is_bounded(cloud: Cloud, offer: Offer, tmp_path: Path) -> None:
    cloud.launch(make_body(offer, NAME), START)
    cloud.sweep(after(30))
    log = tmp_path / "clusters" / NAME / "node-0" / LOG_NAME
    with log.open("ab") as file:
        file.write(b"x" * (3 * MAX_LOG_BYTES))
    cloud.sweep(after(31))
    assert log.stat().st_size == 0
    assert log.with_name(f"{LOG_NAME}.1").stat().st_size == MAX_LOG_BYTES
