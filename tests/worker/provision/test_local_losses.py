"""Which nodes the market takes, decided without a process or a clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.worker.provision.clusters import make_profile
from worker.provision.local.losses import Loss, choose_losses, free_instances, to_market_seconds
from worker.provision.local.market import Market, make_market
from worker.provision.local.profile import Profile
from worker.provision.local.records import ClusterRecord, Doom, MarketRecord, NodeRecord

START = datetime(2030, 1, 1, tzinfo=UTC)
SPOT = "local/local-a-1/sim.gpu1/spot"
ON_DEMAND = "local/local-a-1/sim.gpu1/on-demand"


def make_cluster(name: str, age_seconds: float = 0, num_nodes: int = 1, offer_id: str = SPOT) -> ClusterRecord:
    at = START - timedelta(seconds=age_seconds)
    nodes = tuple(NodeRecord(rank=rank) for rank in range(num_nodes))
    return ClusterRecord(
        name=name, job_id="j", fence=1, offer_id=offer_id, created_at=at, boots_at=at, up_at=at, nodes=nodes
    )


def open_market(profile: Profile, seed: int = 0) -> tuple[Market, MarketRecord]:
    record = MarketRecord(epoch=START, seed=seed, profile_name=profile.name, shocks=profile.shocks)
    return make_market(profile, seed), record


def doom(cluster: ClusterRecord, rank: int) -> ClusterRecord:
    notice = Doom(noticed_at=START, terminate_at=START + timedelta(seconds=15), has_notice=True)
    return cluster.with_node(cluster.nodes[rank].model_copy(update={"doom": notice}))


def test_capacity_takes_the_newest_cluster_and_its_highest_rank_first() -> None:
    market, record = open_market(make_profile(supply={"kind": "steady", "instances": 2}, notice_share=1))
    clusters = [make_cluster("new", 10, 2), make_cluster("old", 99, 2), make_cluster("paid", 1, 9, ON_DEMAND)]
    assert choose_losses(market, record, clusters, START).losses == [
        Loss(cluster_name="new", node_rank=1, has_notice=True),
        Loss(cluster_name="new", node_rank=0, has_notice=True),
    ]


def test_a_doomed_node_is_not_chosen_again_but_holds_its_place() -> None:
    market, record = open_market(make_profile(supply={"kind": "steady", "instances": 1}))
    clusters = [doom(make_cluster("new", 10), 0), make_cluster("old", 99)]
    assert choose_losses(market, record, clusters, START).losses == []
    assert free_instances(market, record, clusters, market.offers[SPOT], START) == 0


def test_shocks_strike_in_order_the_first_cluster_old_enough_each_once() -> None:
    shocks = [
        {"after_up_seconds": 35, "has_notice": True, "closes_for_seconds": 60},
        {"after_up_seconds": 35, "has_notice": False},
    ]
    market, record = open_market(make_profile(shocks=shocks))
    young, first = make_cluster("young", 34.9), make_cluster("first", 36)
    paid = make_cluster("paid", 99, offer_id=ON_DEMAND)
    verdict = choose_losses(market, record, [young, paid, first], START)
    assert verdict.losses == [Loss(cluster_name="first", node_rank=0, has_notice=True)]
    assert free_instances(market, verdict.market, [], market.offers[SPOT], START + timedelta(seconds=59)) == 0
    assert free_instances(market, verdict.market, [], market.offers[SPOT], START + timedelta(seconds=60)) == 8

    first = doom(first, 0)
    calm = choose_losses(market, verdict.market, [young, paid, first], START)
    assert calm.losses == [], "the one that is going already is not struck again"
    later = choose_losses(market, calm.market, [young, paid, first], START + timedelta(seconds=1))
    assert later.losses == [Loss(cluster_name="young", node_rank=0, has_notice=False)]
    assert later.market.shocks == ()
    assert choose_losses(market, later.market, [make_cluster("next", 500)], START).losses == []


def test_a_shock_of_a_zone_waits_for_it() -> None:
    shock = {"after_up_seconds": 1, "has_notice": True, "zone": "local-b-1"}
    market, record = open_market(make_profile(shocks=[shock]))
    elsewhere = make_cluster("a", 99)
    there = make_cluster("b", 2, offer_id="local/local-b-1/sim.gpu1/spot")
    assert choose_losses(market, record, [elsewhere], START).losses == []
    assert [loss.cluster_name for loss in choose_losses(market, record, [elsewhere, there], START).losses] == ["b"]


def test_a_week_of_the_market_keeps_every_pool_within_its_capacity() -> None:
    """One cluster of two nodes is kept asked for in each pool; an hour passes in 30 s of the market's clock."""
    profile = make_profile(supply={"kind": "drawn", "max_instances": 4}, time_scale=120)
    market, record = open_market(profile, seed=3)
    spot = [offer for offer in market.offers.values() if offer.market == "spot"]
    clusters: dict[str, ClusterRecord] = {}
    losses = launches = refusals = 0
    noticed: set[bool] = set()
    for tick in range(7 * 24 * 60):
        now = START + timedelta(seconds=tick * 0.5)
        for loss in choose_losses(market, record, clusters.values(), now).losses:
            clusters.pop(loss.cluster_name, None)
            noticed.add(loss.has_notice)
            losses += 1
        for offer in spot:
            stock = market.stock(offer, to_market_seconds(market, record, now)).instances
            running = sum(len(c.live_nodes) for c in clusters.values() if c.offer_id == offer.id)
            assert running <= stock
            if running == 0 and free_instances(market, record, clusters.values(), offer, now) >= 2:
                clusters[f"c-{launches}"] = make_cluster(f"c-{launches}", (START - now).total_seconds(), 2, offer.id)
                launches += 1
            elif running == 0:
                refusals += 1
    assert launches > 20
    assert losses > 20
    assert refusals > 20
    assert noticed == {True, False}
