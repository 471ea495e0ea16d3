"""Holding on to a claim while the world is slow: a launch or the reading of a large checkpoint may outlast any fixed bound."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import structlog
from sqlalchemy.exc import SQLAlchemyError

from service.context import Context
from service.db.claims import CLAIM, Claim, holds_claim
from service.db.session import run_in_transaction

log = structlog.get_logger()

_PERIOD_SECONDS = CLAIM.total_seconds() / 3


@contextmanager
def keep_claim(context: Context, claim: Claim) -> Iterator[None]:
    """Prolong the claim until the block ends. A worker that is stopped or killed stops prolonging, and loses it."""
    over = threading.Event()
    thread = threading.Thread(target=_prolong, args=(context, claim, over), name="claim", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _prolong(context: Context, claim: Claim, over: threading.Event) -> None:
    while not over.wait(_PERIOD_SECONDS):
        try:
            if not run_in_transaction(context.sessions, partial(holds_claim, claim=claim)):
                return
        except SQLAlchemyError as error:
            log.warning("claim_not_prolonged", job_id=claim.job_id, error=type(error).__name__)
