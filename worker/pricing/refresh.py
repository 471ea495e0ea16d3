"""Ask the provisioner for offers and quotes, then write them down in one transaction.

A quote that is not believed goes to the log, and as `price.rejected` to the jobs that run on the offer: once a change.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import structlog
from sqlalchemy import select
from sqlalchemy.orm import Session

from service.context import Context
from service.db.models import Attempt, Job
from service.db.outbox import emit
from service.db.session import run_in_transaction
from service.domain.states import AttemptState
from service.prices.recording import RecordedQuotes, RejectedQuote, record_quotes
from worker.provision.protocol import Provisioner

_log = structlog.get_logger(__name__)


def refresh_quotes(context: Context, provisioner: Provisioner) -> RecordedQuotes:
    """One refresh. Idempotent; two at once do no harm.

    Errors: ProviderUnavailable, with nothing written: the quotes grow older until a later refresh.
    """
    offers, quotes = provisioner.list_offers(), provisioner.list_quotes()
    now = context.clock()

    def record(session: Session) -> RecordedQuotes:
        recorded = record_quotes(session, offers, quotes, now, quote_stale=context.settings.quote_stale)
        _tell_jobs(session, [rejected for rejected in recorded.rejected if rejected.is_news], now)
        return recorded

    recorded = run_in_transaction(context.sessions, record)
    for rejected in recorded.rejected:
        if rejected.is_news:
            _log.warning("price_rejected", offer=rejected.offer_id, reason=rejected.reason)
    return recorded


def _tell_jobs(session: Session, news: Sequence[RejectedQuote], now: datetime) -> None:
    if not news:
        return
    reasons = {rejected.offer_id: rejected.reason for rejected in news}
    jobs = session.execute(
        select(Job.project_id, Job.id, Attempt.offer_id)
        .join(Attempt, Attempt.job_id == Job.id)
        .where(Attempt.state != AttemptState.GONE, Attempt.offer_id.in_(reasons))
        .distinct()
    )
    for project_id, job_id, offer_id in jobs:
        emit(
            session,
            project_id=project_id,
            job_id=job_id,
            kind="price.rejected",
            at=now,
            offer_id=offer_id,
            reason=reasons[offer_id],
        )
