"""What a submission would meet: offers, prices and money. Reads only."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from service.api.money import to_usd, to_usd_or_none
from service.api.problems import Problem
from service.budgets.service import view_money
from service.domain.money import reserved_nano, to_nano
from service.domain.price_book import PricedOffer
from service.domain.terms import Terms
from service.jobs.schemas import DryRunOffer, DryRunView
from service.jobs.submit import check_is_covered
from service.prices.service import list_priced_offers
from training.protocol.job_spec import JobSpec, Market, Resources

SHOWN_OFFERS = 20
DEFAULT_INTERVAL = timedelta(minutes=15)


def dry_run(session: Session, spec: JobSpec, *, project_id: str, now: datetime, terms: Terms) -> DryRunView:
    """Validates as a submission does, except that what would only delay the job is told instead of refused."""
    priced = list_priced_offers(session, now, quote_stale=terms.quote_stale)
    matching = [offer for offer in priced if matches(spec.resources, offer)]
    cheapest = next((offer for offer in matching if offer.hourly_nano is not None), None)
    admission_nano = first_admission_nano(spec, cheapest, terms) if cheapest else None
    available_nano = _available_nano(session, spec, project_id)
    reasons = _list_reasons(session, spec, project_id, matching, admission_nano, available_nano)
    return DryRunView(
        is_admissible=not reasons,
        reasons=reasons,
        offer_count=len(matching),
        offers=[_show(offer, now) for offer in matching[:SHOWN_OFFERS]],
        cheapest_hourly_usd=to_usd_or_none(cheapest.hourly_nano if cheapest else None),
        admission_usd=to_usd_or_none(admission_nano),
        available_usd=to_usd_or_none(available_nano),
    )


def matches(resources: Resources, priced: PricedOffer) -> bool:
    """Whether an offer meets a spec's filters and, where its price is known, the highest price."""
    offer = priced.offer
    max_nano = to_nano(resources.max_price) if resources.max_price else None
    return (
        (resources.market is Market.AUTO or offer.market == resources.market.value)
        and (resources.accelerators is None or offer.accelerators == resources.accelerators)
        and (not resources.providers or offer.provider in resources.providers)
        and (not resources.regions or offer.region in resources.regions)
        and (not resources.instance_types or offer.instance_type in resources.instance_types)
        and (max_nano is None or priced.hourly_nano is None or priced.hourly_nano <= max_nano)
    )


def first_admission_nano(spec: JobSpec, priced: PricedOffer, terms: Terms) -> int:
    """What a launch sets aside: start-up, one checkpoint interval and the tail, at the ceiling, for every node."""
    max_price = spec.resources.max_price
    ceiling_nano = to_nano(max_price) if max_price else priced.offer.on_demand_hourly_nano
    interval = spec.checkpoint.every or min(DEFAULT_INTERVAL, terms.grant)
    span = max(terms.grant, terms.startup + interval) + terms.tail
    return reserved_nano(ceiling_nano, span, spec.resources.num_nodes)


def _available_nano(session: Session, spec: JobSpec, project_id: str) -> int | None:
    amounts = [view_money(session, project_id, "").available_nano]
    if spec.budget is not None:
        amounts.append(to_nano(spec.budget.cap_usd))
    return min((amount for amount in amounts if amount is not None), default=None)


def _list_reasons(
    session: Session,
    spec: JobSpec,
    project_id: str,
    matching: list[PricedOffer],
    admission_nano: int | None,
    available_nano: int | None,
) -> list[str]:
    reasons = []
    try:
        check_is_covered(session, spec, project_id)
    except Problem as problem:
        reasons.append(f"{problem.detail} {problem.remedy}")
    if not matching:
        reasons.append("No offer matches 'resources'.")
    elif admission_nano is None:
        reasons.append("No offer that matches has a price now.")
    elif available_nano is not None and admission_nano > available_nano:
        reasons.append(
            f"The first admission sets {to_usd(admission_nano)} USD aside; {to_usd(available_nano)} are available."
        )
    return reasons


def _show(priced: PricedOffer, now: datetime) -> DryRunOffer:
    is_available = priced.unavailable_until is None or priced.unavailable_until <= now
    return DryRunOffer(id=priced.offer.id, hourly_usd=to_usd_or_none(priced.hourly_nano), is_available=is_available)
