"""What a submission would meet: offers, prices and money. Reads only."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy.orm import Session

from service.api.money import to_usd, to_usd_or_none
from service.api.problems import Problem
from service.budgets.service import view_money
from service.domain.grants import covered_until
from service.domain.money import floor_second, reserved_nano, to_nano
from service.domain.placement import rank_candidates
from service.domain.snapshot import Candidate
from service.domain.states import StatusReason
from service.domain.terms import Terms
from service.jobs.schemas import DryRunOffer, DryRunView
from service.jobs.submit import check_is_covered
from service.jobs.wanted import first_grant, to_wanted
from service.prices.service import list_priced_offers
from training.protocol.job_spec import JobSpec

SHOWN_OFFERS = 20
_EVER = datetime.max.replace(tzinfo=UTC)
"""By then every offer is open again: what would do, out of capacity or not."""
_REASONS = {
    StatusReason.NO_OFFER: "No offer matches 'resources'.",
    StatusReason.PRICE_UNKNOWN: "No offer that matches has a price below the ceiling now.",
    StatusReason.NO_CAPACITY: "Every offer that matches is out of capacity now.",
}


def dry_run(session: Session, spec: JobSpec, *, project_id: str, now: datetime, terms: Terms) -> DryRunView:
    """Validates as a submission does, except that what would only delay the job is told instead of refused."""
    priced = list_priced_offers(session, now, quote_stale=terms.quote_stale)
    candidates, reason = rank_candidates(priced, to_wanted(spec), now=now)
    quoted, _ = rank_candidates(priced, to_wanted(spec), now=_EVER)
    best = candidates[0] if candidates else None
    admission_nano = first_admission_nano(spec, best, terms, now) if best else None
    available_nano = _available_nano(session, spec, project_id)
    reasons = _list_reasons(session, spec, project_id, None if best else reason, admission_nano, available_nano)
    return DryRunView(
        is_admissible=not reasons,
        reasons=reasons,
        offer_count=len(quoted),
        offers=[_show(one, is_available=one in candidates) for one in quoted[:SHOWN_OFFERS]],
        cheapest_hourly_usd=to_usd(best.hourly_nano) if best else None,
        admission_usd=to_usd_or_none(admission_nano),
        available_usd=to_usd_or_none(available_nano),
    )


def first_admission_nano(spec: JobSpec, candidate: Candidate, terms: Terms, now: datetime) -> int:
    """What a launch now would set aside (see `service.domain.decide.first_reservation`)."""
    span = covered_until(now + first_grant(spec, terms), terms) - floor_second(now)
    return reserved_nano(candidate.ceiling_hourly_nano, span, spec.resources.num_nodes)


def _available_nano(session: Session, spec: JobSpec, project_id: str) -> int | None:
    amounts = [view_money(session, project_id, "").available_nano]
    if spec.budget is not None:
        amounts.append(to_nano(spec.budget.cap_usd))
    return min((amount for amount in amounts if amount is not None), default=None)


def _list_reasons(
    session: Session,
    spec: JobSpec,
    project_id: str,
    no_offer: StatusReason | None,
    admission_nano: int | None,
    available_nano: int | None,
) -> list[str]:
    reasons = []
    try:
        check_is_covered(session, spec, project_id)
    except Problem as problem:
        reasons.append(f"{problem.detail} {problem.remedy}")
    if no_offer is not None:
        reasons.append(_REASONS[no_offer])
    if admission_nano is not None and available_nano is not None and admission_nano > available_nano:
        reasons.append(
            f"The first admission sets {to_usd(admission_nano)} USD aside; {to_usd(available_nano)} are available."
        )
    return reasons


def _show(candidate: Candidate, *, is_available: bool) -> DryRunOffer:
    return DryRunOffer(id=candidate.offer.id, hourly_usd=to_usd(candidate.hourly_nano), is_available=is_available)
