"""The world of the fault tests: the shipped code on either database, the fake cloud, a clock. G1-G4 are checked at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.world import World


@pytest.fixture
def world(database: str, tmp_path: Path) -> Iterator[World]:
    made = World(database, tmp_path / "data")
    yield made
    made.check()
    made.close()
