"""The fake's scripted faults do what they say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from service.domain.observations import ClusterState
from service.domain.offers import Market
from tests.worker.provision.clusters import make_request
from worker.provision.fake import FakeProvisioner
from worker.provision.protocol import Interruptible, NoCapacity, ProviderUnavailable, Provisioner

NAME = "gdw-job-1"
START = datetime(2030, 1, 1, tzinfo=UTC)


class World:
    def __init__(self) -> None:
        self.now = START
        self.cloud = FakeProvisioner(clock=lambda: self.now)
        self.offer = next(offer for offer in self.cloud.list_offers() if offer.market is Market.SPOT)

    def launch(self, num_nodes: int = 1) -> None:
        self.cloud.launch(make_request(self.offer, NAME, num_nodes=num_nodes))

    def state(self) -> ClusterState:
        return self.cloud.observe(NAME).state


@pytest.fixture
def world() -> World:
    return World()


def test_it_is_a_provisioner_that_can_interrupt(world: World) -> None:
    provisioner: Provisioner = world.cloud
    assert isinstance(provisioner, Interruptible)


def test_a_throttled_launch_does_nothing(world: World) -> None:
    world.cloud.fail_next("launch", ProviderUnavailable("throttled"), times=2)
    for _ in range(2):
        with pytest.raises(ProviderUnavailable):
            world.launch()
    assert world.state() is ClusterState.ABSENT
    world.launch()
    assert world.state() is ClusterState.UP


def test_a_launch_may_time_out_after_the_creation(world: World) -> None:
    world.cloud.fail_next("launch", ProviderUnavailable("timed out"), has_effect=True)
    with pytest.raises(ProviderUnavailable):
        world.launch()
    assert world.state() is ClusterState.UP
    world.launch()
    assert len(world.cloud.launches) == 1


def test_capacity_is_what_it_is_told(world: World) -> None:
    world.cloud.set_capacity(world.offer.id, 1)
    with pytest.raises(NoCapacity):
        world.launch(num_nodes=2)
    world.launch()
    assert world.state() is ClusterState.UP


def test_frozen_answers_tell_the_past_for_so_many_calls(world: World) -> None:
    world.cloud.freeze_observations(2)
    world.launch()
    assert [world.state() for _ in range(3)] == [ClusterState.ABSENT, ClusterState.ABSENT, ClusterState.UP]


def test_a_lying_termination_leaves_the_cluster_billed(world: World) -> None:
    world.launch()
    world.cloud.lie_about_terminations(1)
    assert world.cloud.terminate(NAME) is True
    assert world.state() is ClusterState.UP
    assert set(world.cloud.live_clusters()) == {NAME}
    assert world.cloud.terminate(NAME) is True
    assert world.state() is ClusterState.ENDED
    assert world.cloud.live_clusters() == {}


def test_a_failed_termination_may_have_worked(world: World) -> None:
    world.launch()
    for has_effect, state in ((False, ClusterState.UP), (True, ClusterState.ENDED)):
        world.cloud.fail_next("terminate", ProviderUnavailable("500"), has_effect=has_effect)
        with pytest.raises(ProviderUnavailable):
            world.cloud.terminate(NAME)
        assert world.state() is state


def test_half_a_gang_is_degraded_and_not_preempted(world: World) -> None:
    world.cloud.launch_part_next(1)
    world.launch(num_nodes=2)
    seen = world.cloud.observe(NAME)
    assert (seen.state, seen.is_preempted) == (ClusterState.DEGRADED, False)


def test_preempted_now_and_forgotten_later(world: World) -> None:
    world.launch(num_nodes=2)
    world.cloud.preempt(NAME, [1])
    assert world.state() is ClusterState.DEGRADED
    world.cloud.preempt(NAME)
    assert (world.state(), world.cloud.observe(NAME).is_preempted) == (ClusterState.ENDED, True)
    world.now += timedelta(minutes=10)
    assert world.state() is ClusterState.ABSENT


def test_prices_may_be_senseless(world: World) -> None:
    world.cloud.set_price(world.offer.id, -1)
    (quote,) = [quote for quote in world.cloud.list_quotes() if quote.offer_id == world.offer.id]
    assert (quote.hourly_nano, quote.at) == (-1, START)
