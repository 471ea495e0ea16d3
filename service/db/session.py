"""Engines, sessions and the one commit boundary."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session, sessionmaker

from service.db.outbox import write_pending_events

T = TypeVar("T")
SessionFactory = sessionmaker[Session]

_BUSY_TIMEOUT_SECONDS = 15
_RETRYABLE_SQLSTATES = frozenset({"40001", "40P01", "55P03"})
_AWAY_SQLSTATES = ("08", "57P", "53")
"""Connection lost, shutting down, out of resources (53100 is a full disk)."""


def make_engine(url: str) -> Engine:
    """PostgreSQL (psycopg 3), or SQLite in WAL mode whose write transactions begin IMMEDIATE."""
    if url.startswith("postgresql://"):
        url = url.replace("postgresql://", "postgresql+psycopg://", 1)
    if not url.startswith("sqlite"):
        return create_engine(
            url, pool_pre_ping=True, pool_size=5, max_overflow=20, pool_timeout=10, hide_parameters=True
        )
    busy = {"timeout": _BUSY_TIMEOUT_SECONDS, "check_same_thread": False}
    engine = create_engine(url, connect_args=busy, hide_parameters=True)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_immediate)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # the driver's own BEGIN is deferred; ours is not
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        f"busy_timeout={_BUSY_TIMEOUT_SECONDS}000",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_immediate(connection: Any) -> None:
    is_reader = connection.get_execution_options().get("is_reader", False)
    connection.exec_driver_sql("BEGIN" if is_reader else "BEGIN IMMEDIATE")


def make_session_factory(engine: Engine) -> SessionFactory:
    factory = sessionmaker(engine, expire_on_commit=False)
    event.listen(factory, "before_commit", write_pending_events)
    return factory


@contextmanager
def session_scope(factory: SessionFactory, *, is_reader: bool = False) -> Iterator[Session]:
    """One transaction: commits at the end, rolls back on any error. A reader takes no write lock on SQLite."""
    with factory() as session:
        if is_reader:
            session.connection(execution_options={"is_reader": True})
        try:
            yield session
            session.commit()
        except BaseException:
            session.rollback()
            raise


def run_in_transaction(factory: SessionFactory, work: Callable[[Session], T], *, tries: int = 5) -> T:
    """Run `work` in one transaction, again when the database asks for it (deadlock, serialization, busy)."""
    for attempt in range(1, tries + 1):
        try:
            with session_scope(factory) as session:
                return work(session)
        except OperationalError as error:
            if attempt == tries or not is_retryable(error):
                raise
            time.sleep(random.uniform(0, 0.05 * 2**attempt))  # noqa: S311 - jitter
    raise AssertionError("unreachable")


def is_retryable(error: DBAPIError) -> bool:
    """The transaction lost a race and may simply run again."""
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return state in _RETRYABLE_SQLSTATES
    return "database is locked" in str(error.orig) or "database table is locked" in str(error.orig)


def is_away(error: DBAPIError) -> bool:
    """The database cannot serve now: gone, restarting, full. Callers answer 503 and try again later."""
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return state.startswith(_AWAY_SQLSTATES)
    if error.connection_invalidated or type(error.orig).__module__.startswith("psycopg"):
        return isinstance(error, OperationalError)
    message = str(error.orig)
    return any(
        part in message for part in ("disk is full", "disk I/O", "unable to open", "readonly database", "locked")
    )


def database_now(session: Session) -> datetime:
    """The database's own time, which alone rules claims."""
    if session.get_bind().dialect.name == "sqlite":
        value = session.scalar(text("SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')"))
        return datetime.strptime(f"{value}+0000", "%Y-%m-%d %H:%M:%S.%f%z")
    return session.scalar(text("SELECT clock_timestamp()")).astimezone(UTC)
