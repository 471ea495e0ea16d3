"""Fixtures that every suite may use: databases, settings and contexts."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.context import Context, make_context
from service.settings import Settings
from tests.databases import PostgresServer, make_sqlite_template, run_postgres

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # httpx works; later imports of the test client find it loaded
    import fastapi.testclient  # noqa: F401


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with run_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sqlite_template(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture
def sqlite_url(tmp_path: Path, sqlite_template: Path) -> str:
    """A fresh migrated SQLite database."""
    path = tmp_path / "godwit.db"
    shutil.copy(sqlite_template, path)
    return f"sqlite:///{path}"


@pytest.fixture
def postgresql_url(postgres: PostgresServer) -> Iterator[str]:
    """A fresh migrated PostgreSQL database."""
    name = postgres.make_database()
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str:
    """The URL of a fresh migrated database; a test that asks for it runs on both kinds."""
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
def settings(database: str, tmp_path: Path) -> Settings:
    """An embedded service's settings in a folder of the test's own; nothing listens at the broker's address."""
    return Settings(data_dir=tmp_path / "data", database_url=database, broker_url="redis://127.0.0.1:1/0")


@pytest.fixture
def context(settings: Settings) -> Iterator[Context]:
    made = make_context(settings)
    yield made
    made.sessions.kw["bind"].dispose()
