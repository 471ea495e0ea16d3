"""What a spec asks of offers and of money, as the decisions take it."""

from __future__ import annotations

from datetime import timedelta

from service.domain.money import to_nano
from service.domain.offers import Market
from service.domain.placement import Wanted
from service.domain.terms import Terms
from training.protocol.job_spec import JobSpec
from training.protocol.job_spec import Market as WantedMarket

_DEFAULT_INTERVAL = timedelta(minutes=15)


def to_wanted(spec: JobSpec) -> Wanted:
    """A spec's resources as placement's filter."""
    resources = spec.resources
    return Wanted(
        market=None if resources.market is WantedMarket.AUTO else Market(resources.market.value),
        accelerators=resources.accelerators,
        providers=resources.providers,
        regions=resources.regions,
        instance_types=resources.instance_types,
        max_hourly_nano=to_nano(resources.max_price) if resources.max_price is not None else None,
    )


def first_grant(spec: JobSpec, terms: Terms) -> timedelta:
    """Start-up, and one checkpoint interval: a job that gets going reaches a checkpoint before it needs more money."""
    interval = spec.checkpoint.every or (terms.grant if spec.checkpoint.every_steps else _DEFAULT_INTERVAL)
    return terms.startup + interval
