"""Record: the outcomes of what was done, and when to look again, under the same token. The next decision judges them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from service.db.claims import Claim, holds_claim
from service.db.models import Attempt, Job, OfferRow
from service.domain.money import floor_second
from service.domain.snapshot import LaunchFailure
from service.domain.terms import Terms
from worker.reconcile.act import LaunchOutcome, Outcome, TerminateOutcome

_TERMINATE_PAUSE = timedelta(seconds=1)
_TERMINATE_PAUSE_LIMIT = timedelta(minutes=1)


def record(
    session: Session,
    claim: Claim,
    outcomes: Sequence[Outcome],
    *,
    requeue_after: timedelta | None,
    terms: Terms,
    now: datetime,
) -> bool:
    """Write the outcomes and let go of the claim; True when the job is due again at once."""
    if not holds_claim(session, claim):
        return False
    job = session.get_one(Job, claim.job_id, populate_existing=True)
    for outcome in outcomes:
        statement = select(Attempt).where(Attempt.job_id == job.id, Attempt.fence == outcome.fence).with_for_update()
        attempt = session.scalars(statement.execution_options(populate_existing=True)).one()
        if isinstance(outcome, LaunchOutcome):
            _record_launch(session, job, attempt, outcome, terms, now)
        else:
            _record_terminate(attempt, outcome, now)
    has_news = job.wakes != claim.wakes
    after = timedelta(0) if has_news else requeue_after
    job.due_at = None if after is None else now + after
    job.claim_token = job.claimed_until = None
    return after == timedelta(0)


def _record_launch(
    session: Session, job: Job, attempt: Attempt, outcome: LaunchOutcome, terms: Terms, now: datetime
) -> None:
    attempt.launch_tries += 1
    attempt.tried_at = now
    attempt.launch_failure = outcome.failure.value if outcome.failure else None
    attempt.launch_detail = outcome.detail
    if outcome.failure is None:
        launched_at = attempt.launched_at or max(outcome.began_at, attempt.intended_at)
        attempt.launched_at = launched_at
        attempt.accrued_until = max(attempt.accrued_until, floor_second(launched_at))
        attempt.next_try_at = None
        return
    job.launch_failure_count += 1
    attempt.next_try_at = now + min(terms.backoff * 2 ** (attempt.launch_tries - 1), terms.backoff_limit)
    if outcome.failure is not LaunchFailure.UNKNOWN:
        session.execute(
            update(OfferRow)
            .where(OfferRow.id == attempt.offer_id)
            .values(
                unavailable_until=now + terms.unavailable,
                unavailable_reason=outcome.failure.value,
                failure_count=OfferRow.failure_count + 1,
            )
            .execution_options(synchronize_session=False)
        )


def _record_terminate(attempt: Attempt, outcome: TerminateOutcome, now: datetime) -> None:
    attempt.terminate_tries += 1
    pause = min(_TERMINATE_PAUSE * 2 ** min(attempt.terminate_tries - 1, 10), _TERMINATE_PAUSE_LIMIT)
    attempt.next_try_at = None if outcome.is_confirmed else now + pause
