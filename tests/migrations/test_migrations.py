"""The schema's history makes exactly the schema that the models describe."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

from service.db.migrate import current_revision, newest_revision, upgrade
from service.db.models import Base
from service.db.session import make_engine
from tests.databases import PostgresServer


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.db'}"
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return postgres.url(postgres.make_database("template0"))


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    made = make_engine(database)
    yield made
    made.dispose()


def test_models_equal_migrations(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Base.metadata) == []
        assert current_revision(connection) == newest_revision()


def test_migrations_have_every_check_and_partial_index(engine: Engine) -> None:
    """What autogeneration does not compare."""
    inspector = inspect(engine)
    for table in Base.metadata.sorted_tables:
        wanted = {str(c.name) for c in table.constraints if type(c).__name__ == "CheckConstraint"}
        assert {c["name"] for c in inspector.get_check_constraints(table.name)} == wanted, table.name
        unique = {str(i.name) for i in table.indexes if i.unique}
        assert {i["name"] for i in inspector.get_indexes(table.name) if i["unique"]} >= unique


def test_two_upgraders_at_once_both_succeed(empty_database: str) -> None:
    script = "import sys; from service.db.migrate import upgrade; upgrade(sys.argv[1])"
    argv = [sys.executable, "-c", script, empty_database]
    both = [subprocess.Popen(argv) for _ in range(2)]  # noqa: S603
    assert [process.wait(60) for process in both] == [0, 0]
    engine = make_engine(empty_database)
    with engine.connect() as connection:
        assert current_revision(connection) == newest_revision()
    engine.dispose()


def test_an_interrupted_upgrade_leaves_nothing_and_goes_on(empty_database: str) -> None:
    """A table in the way makes the revision fail late; the whole revision is undone and runs again afterwards."""
    engine = make_engine(empty_database)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE nodes (in_the_way INTEGER)"))
    with pytest.raises(Exception, match="already exists"):
        upgrade(empty_database)
    assert set(inspect(engine).get_table_names()) <= {"nodes", "alembic_version"}
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE nodes"))
    upgrade(empty_database)
    upgrade(empty_database)
    assert set(Base.metadata.tables) <= set(inspect(engine).get_table_names())
    engine.dispose()
