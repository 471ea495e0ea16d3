"""The API's presence: a thread that says every few seconds that nodes can be heard."""

from __future__ import annotations

import threading
from functools import partial

import structlog
from sqlalchemy.exc import SQLAlchemyError

from service.context import Context
from service.db.session import run_in_transaction
from service.db.watches import API, touch_watch
from service.domain.terms import GAP

log = structlog.get_logger()

_PERIOD_SECONDS = GAP.total_seconds() / 5


def keep_presence(context: Context, closing: threading.Event) -> threading.Thread:
    """Start the thread; it ends soon after `closing` is set. A database that is away makes a gap, as it should."""
    thread = threading.Thread(target=_run, args=(context, closing), name="presence", daemon=True)
    thread.start()
    return thread


def _run(context: Context, closing: threading.Event) -> None:
    while not closing.is_set():
        try:
            run_in_transaction(context.sessions, partial(touch_watch, name=API, now=context.clock()))
        except SQLAlchemyError as error:
            log.warning("presence_not_recorded", error=type(error).__name__)
        closing.wait(_PERIOD_SECONDS)
