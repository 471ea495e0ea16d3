"""Brings a database to the newest schema.

Each revision is one transaction and one version mark, so an upgrade that was interrupted goes on where it stopped. Upgraders
take turns: by an advisory lock on PostgreSQL, by a lock file beside the database on SQLite.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.engine import make_url

from service.db.session import make_engine

_LOCK_KEY = 7_263_901_146


def upgrade(url: str, revision: str = "head") -> None:
    """Safe to repeat and to run from several processes at once. Errors: SQLAlchemy's, with the step's work undone."""
    engine = make_engine(url)
    try:
        with _turn(url), engine.connect() as connection, _advisory_lock(connection), _config(connection) as config:
            command.upgrade(config, revision)
    finally:
        engine.dispose()


def current_revision(connection: Connection) -> str | None:
    """The revision that a database is at; None for an empty one."""
    return MigrationContext.configure(connection).get_current_revision()


def newest_revision() -> str | None:
    """The revision that this release needs."""
    with as_file(files("migrations")) as folder:
        return ScriptDirectory(str(folder)).get_current_head()


@contextmanager
def _config(connection: Connection) -> Iterator[Config]:
    with as_file(files("migrations")) as folder:
        config = Config()
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        yield config


@contextmanager
def _advisory_lock(connection: Connection) -> Iterator[None]:
    """The lock lives on a connection of its own: a migration that fails must not strand it inside a broken transaction."""
    if connection.dialect.name != "postgresql":
        yield
        return
    with connection.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as holder:
        holder.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK_KEY})
        try:
            yield
        finally:
            holder.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK_KEY})


@contextmanager
def _turn(url: str) -> Iterator[None]:
    database = make_url(url).database
    if not url.startswith("sqlite") or not database or database == ":memory:":
        yield
        return
    path = Path(f"{database}.migrate.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
