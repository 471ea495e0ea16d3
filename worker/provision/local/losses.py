"""Which nodes the market takes now. Pure: clusters, market and time in, losses out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from service.domain.observations import ClusterState
from service.domain.offers import Market as MarketKind
from service.domain.offers import Offer
from worker.provision.local.market import Market
from worker.provision.local.profile import Shock
from worker.provision.local.records import Closure, ClusterRecord, MarketRecord, NodeRecord


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The market takes this node, after an interruption notice or at once."""

    cluster_name: str
    node_rank: int
    has_notice: bool


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The losses of one sweep, and the market's record after them."""

    losses: Sequence[Loss]
    market: MarketRecord


def to_market_seconds(market: Market, record: MarketRecord, now: datetime) -> float:
    """The market's own time; before its start it stands at 0."""
    return max(0.0, (now - record.epoch).total_seconds()) * market.profile.time_scale


def free_instances(
    market: Market, record: MarketRecord, clusters: Iterable[ClusterRecord], offer: Offer, now: datetime
) -> int:
    """Nodes of this offer that a launch can have now; 0 while the offer is closed. Doomed nodes still hold their places."""
    if any(closure.offer_id == offer.id and now < closure.until for closure in record.closures):
        return 0
    running = sum(len(cluster.live_nodes) for cluster in clusters if cluster.offer_id == offer.id)
    return max(0, market.stock(offer, to_market_seconds(market, record, now)).instances - running)


def choose_losses(market: Market, record: MarketRecord, clusters: Iterable[ClusterRecord], now: datetime) -> Verdict:
    """Losses by the pools' capacity, newest cluster and highest rank first, then at most one shock."""
    spot = [c for c in clusters if c.live_nodes and _is_spot(market, c)]
    losses = _capacity_losses(market, spot, to_market_seconds(market, record, now))
    taken = {loss.cluster_name for loss in losses}
    calm = [c for c in spot if c.name not in taken and not any(node.doom for node in c.nodes)]
    return _apply_shock(market, record, calm, losses, now)


def _is_spot(market: Market, cluster: ClusterRecord) -> bool:
    offer = market.offers.get(cluster.offer_id)
    return offer is not None and offer.market is MarketKind.SPOT


def _capacity_losses(market: Market, clusters: Sequence[ClusterRecord], market_seconds: float) -> list[Loss]:
    pools: dict[str, list[tuple[ClusterRecord, NodeRecord]]] = defaultdict(list)
    for cluster in sorted(clusters, key=lambda c: (c.created_at, c.name), reverse=True):
        undoomed = [node for node in cluster.live_nodes if node.doom is None]
        pools[cluster.offer_id] += [(cluster, node) for node in reversed(undoomed)]
    losses: list[Loss] = []
    for offer_id, nodes in pools.items():
        offer = market.offers[offer_id]
        stock = market.stock(offer, market_seconds)
        losses += [
            Loss(
                cluster_name=cluster.name,
                node_rank=node.rank,
                has_notice=market.is_loss_noticed(offer, cluster.name, stock),
            )
            for cluster, node in nodes[: max(0, len(nodes) - stock.instances)]
        ]
    return losses


def _apply_shock(
    market: Market, record: MarketRecord, calm: Sequence[ClusterRecord], losses: Sequence[Loss], now: datetime
) -> Verdict:
    """Use up the next shock if a cluster that nothing else befell is old enough for it: the oldest such one."""
    closures = tuple(closure for closure in record.closures if now < closure.until)
    victims = [c for c in calm if record.shocks and _is_hit(market, c, record.shocks[0], now)]
    if not victims:
        return Verdict(losses=losses, market=record.model_copy(update={"closures": closures}))
    shock, victim = record.shocks[0], min(victims, key=lambda c: (c.created_at, c.name))
    loss = Loss(cluster_name=victim.name, node_rank=max(n.rank for n in victim.live_nodes), has_notice=shock.has_notice)
    if shock.closes_for_seconds:
        until = now + timedelta(seconds=shock.closes_for_seconds)
        closures = (*closures, Closure(offer_id=victim.offer_id, until=until))
    after = record.model_copy(update={"shocks": record.shocks[1:], "closures": closures})
    return Verdict(losses=[*losses, loss], market=after)


def _is_hit(market: Market, cluster: ClusterRecord, shock: Shock, now: datetime) -> bool:
    if cluster.up_at is None or cluster.state is not ClusterState.UP:
        return False
    is_old_enough = (now - cluster.up_at).total_seconds() >= shock.after_up_seconds
    return is_old_enough and shock.zone in (None, market.offers[cluster.offer_id].zone)
