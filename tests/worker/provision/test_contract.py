"""What every provisioner keeps: the fake in memory and the local cloud with real processes."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

import pytest

from service.domain.observations import ClusterState, Observation
from service.domain.offers import Market, Offer
from tests.worker.provision.clusters import SECRET, Daemon, find_nodes_of, make_request, read_node, wait_until
from tests.worker.provision.imds import read_instance_action
from worker.provision.fake import FakeProvisioner
from worker.provision.protocol import Interruptible, LaunchRefused, NoCapacity, Provisioner, ProvisionError


class Harness(Protocol):
    """A provisioner, and what a test does to its world."""

    name: str
    """Of the cluster that the test launches."""

    @property
    def provisioner(self) -> Provisioner: ...

    def await_state(self, state: ClusterState) -> Observation: ...
    def exit_agent(self, rank: int) -> None: ...
    def dry_offer(self) -> Offer: ...
    def count_started(self) -> int: ...
    def has_notice(self, rank: int) -> bool: ...


class FakeHarness:
    def __init__(self) -> None:
        self.name = "gdw-job-1"
        self._now = datetime(2030, 1, 1, tzinfo=UTC)
        self.provisioner = FakeProvisioner(clock=lambda: self._now, boot=timedelta(seconds=30))

    def await_state(self, state: ClusterState) -> Observation:
        for _ in range(20):
            if (seen := self.provisioner.observe(self.name, is_forced=True)).state is state:
                return seen
            self._now += timedelta(seconds=15)
        raise AssertionError(f"never {state}")

    def exit_agent(self, rank: int) -> None:
        self.provisioner.power_off(self.name, [rank])

    def dry_offer(self) -> Offer:
        offer = self.provisioner.list_offers()[-1]
        self.provisioner.set_capacity(offer.id, 0)
        return offer

    def count_started(self) -> int:
        return sum(len(request.specs) for request in self.provisioner.launches)

    def has_notice(self, rank: int) -> bool:
        return self.provisioner.has_notice(self.name, rank)


class LocalHarness:
    def __init__(self, daemon: Daemon) -> None:
        self.name = f"gdw-{secrets.token_hex(4)}"  # the shared daemon remembers the other tests' clusters
        self._daemon = daemon
        self.provisioner = daemon.provisioner

    def await_state(self, state: ClusterState) -> Observation:
        def look() -> Observation | None:
            seen = self.provisioner.observe(self.name, is_forced=True)
            return seen if seen.state is state else None

        return wait_until(look, f"state {state}")

    def exit_agent(self, rank: int) -> None:
        os.kill(read_node(self._daemon.folder, self.name, rank)["pids"][0], signal.SIGTERM)

    def dry_offer(self) -> Offer:
        offers = self.provisioner.list_offers()
        return next(offer for offer in offers if offer.zone == "local-b-1" and offer.market is Market.SPOT)

    def count_started(self) -> int:
        return len(find_nodes_of(self._daemon.folder / "clusters" / self.name))

    def has_notice(self, rank: int) -> bool:
        return read_instance_action(f"{self._daemon.url}/nodes/{self.name}/{rank}") is not None


@pytest.fixture(params=["fake", "local"])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    if request.param == "fake":
        yield FakeHarness()
        return
    local = LocalHarness(request.getfixturevalue("shared_daemon"))
    yield local
    local.provisioner.terminate(local.name)


@pytest.fixture
def offer(harness: Harness) -> Offer:
    return next(offer for offer in harness.provisioner.list_offers() if offer.market is Market.SPOT)


def test_what_nobody_launched_is_absent(harness: Harness) -> None:
    assert harness.provisioner.observe(harness.name).state is ClusterState.ABSENT
    assert harness.provisioner.terminate(harness.name) is True
    assert harness.provisioner.list_clusters() == []


def test_launch_leads_to_up_and_is_listed_with_its_label(harness: Harness, offer: Offer) -> None:
    harness.provisioner.launch(make_request(offer, harness.name, num_nodes=2, fence=7))
    seen = harness.await_state(ClusterState.UP)
    (listed,) = harness.provisioner.list_clusters()
    assert (listed.cluster_name, listed.job_id, listed.fence) == (harness.name, "job-1", 7)
    assert (listed.offer_id, listed.num_nodes) == (offer.id, 2)
    assert listed.created_at == seen.created_at
    assert (seen.ended_at, seen.is_preempted, seen.failure) == (None, None, None)


def test_a_name_is_launched_once_however_often_and_at_once(harness: Harness, offer: Offer) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: harness.provisioner.launch(make_request(offer, harness.name, num_nodes=2)), range(16)))
    created_at = harness.await_state(ClusterState.UP).created_at
    harness.provisioner.launch(make_request(offer, harness.name, num_nodes=1))
    assert harness.provisioner.observe(harness.name).created_at == created_at
    assert harness.count_started() == 2


def test_no_capacity_leaves_nothing_behind(harness: Harness) -> None:
    with pytest.raises(NoCapacity):
        harness.provisioner.launch(make_request(harness.dry_offer(), harness.name))
    assert harness.provisioner.observe(harness.name).state is ClusterState.ABSENT
    assert harness.provisioner.list_clusters() == []


def test_an_unknown_offer_is_refused_for_good(harness: Harness, offer: Offer) -> None:
    with pytest.raises(LaunchRefused, match="no offer"):
        harness.provisioner.launch(make_request(replace(offer, zone="nowhere-1"), harness.name))
    assert harness.provisioner.observe(harness.name).state is ClusterState.ABSENT


def test_terminate_ends_every_node_and_is_remembered(harness: Harness, offer: Offer) -> None:
    harness.provisioner.launch(make_request(offer, harness.name, num_nodes=2))
    harness.await_state(ClusterState.UP)
    assert harness.provisioner.terminate(harness.name) is True
    seen = harness.provisioner.observe(harness.name)
    assert (seen.state, seen.is_preempted) == (ClusterState.ENDED, False)
    assert seen.created_at is not None
    assert seen.ended_at is not None
    assert seen.created_at <= seen.ended_at
    assert harness.provisioner.list_clusters() == []
    assert harness.provisioner.terminate(harness.name) is True
    assert harness.provisioner.observe(harness.name).ended_at == seen.ended_at


def test_terminate_before_the_boot_starts_nothing(harness: Harness, offer: Offer) -> None:
    harness.provisioner.launch(make_request(offer, harness.name))
    assert harness.provisioner.terminate(harness.name) is True
    assert harness.provisioner.observe(harness.name).state is ClusterState.ENDED


def test_a_node_killed_without_notice_degrades_its_gang(harness: Harness, offer: Offer) -> None:
    harness.provisioner.launch(make_request(offer, harness.name, num_nodes=2))
    harness.await_state(ClusterState.UP)
    assert isinstance(harness.provisioner, Interruptible)
    harness.provisioner.interrupt(harness.name, 1, has_notice=False)
    seen = harness.await_state(ClusterState.DEGRADED)
    assert (seen.is_preempted, seen.ended_at) == (True, None)
    assert len(harness.provisioner.list_clusters()) == 1
    assert harness.provisioner.terminate(harness.name) is True
    assert harness.provisioner.observe(harness.name).is_preempted is True


def test_a_notice_comes_before_the_loss(harness: Harness, offer: Offer) -> None:
    harness.provisioner.launch(make_request(offer, harness.name))
    harness.await_state(ClusterState.UP)
    assert not harness.has_notice(0)
    assert isinstance(harness.provisioner, Interruptible)
    harness.provisioner.interrupt(harness.name, 0, has_notice=True)
    assert harness.has_notice(0)
    assert harness.provisioner.observe(harness.name).state is ClusterState.UP
    seen = harness.await_state(ClusterState.ENDED)
    assert seen.is_preempted is True


def test_nothing_to_interrupt_is_an_error(harness: Harness, offer: Offer) -> None:
    assert isinstance(harness.provisioner, Interruptible)
    with pytest.raises(ProvisionError):
        harness.provisioner.interrupt(harness.name, 0, has_notice=True)
    harness.provisioner.launch(make_request(offer, harness.name))
    with pytest.raises(ProvisionError):
        harness.provisioner.interrupt(harness.name, 1, has_notice=False)


def test_an_agent_that_exits_powers_its_node_off(harness: Harness, offer: Offer) -> None:
    harness.provisioner.launch(make_request(offer, harness.name, num_nodes=2))
    harness.await_state(ClusterState.UP)
    harness.exit_agent(0)
    assert harness.await_state(ClusterState.DEGRADED).is_preempted is False
    harness.exit_agent(1)
    assert harness.await_state(ClusterState.ENDED).is_preempted is False


def test_every_offer_has_one_positive_quote(harness: Harness) -> None:
    offers, quotes = harness.provisioner.list_offers(), harness.provisioner.list_quotes()
    assert {offer.id for offer in offers} == {quote.offer_id for quote in quotes}
    assert len(offers) == len(quotes) > 0
    assert all(quote.hourly_nano > 0 for quote in quotes)


def test_no_listing_shows_a_secret(harness: Harness, offer: Offer) -> None:
    request = make_request(offer, harness.name)
    harness.provisioner.launch(request)
    shown = (request, harness.await_state(ClusterState.UP), harness.provisioner.list_clusters())
    assert SECRET not in repr(shown)
