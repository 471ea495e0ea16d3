"""Accrue: what every live attempt has cost up to now, one transaction an attempt."""

from __future__ import annotations

from functools import partial

from service.context import Context
from service.db.session import run_in_transaction, session_scope
from service.ledger.service import accrue, list_accruing


def accrue_all(context: Context) -> int:
    """Enter the window up to now for each attempt that costs money; nano-dollars entered."""
    with session_scope(context.sessions, is_reader=True) as session:
        attempt_ids = list_accruing(session)
    return sum(_accrue_one(context, attempt_id) for attempt_id in attempt_ids)


def _accrue_one(context: Context, attempt_id: str) -> int:
    now = context.clock()
    return run_in_transaction(context.sessions, partial(accrue, attempt_id=attempt_id, until=now, now=now))
