"""A small corpus of real text."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 100 KB of Python's own sources, in a folder."""
    folder = tmp_path_factory.mktemp("corpus")
    stdlib = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted((stdlib / "json").glob("*.py")) + sorted((stdlib / "collections").glob("*.py")):
        shutil.copy(path, folder / f"{path.parent.name}-{path.name}")
    return folder


@pytest.fixture
def root(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A folder of the test's own, beside a data cache that the whole session shares."""
    base = tmp_path_factory.getbasetemp() / "jobs"
    base.mkdir(exist_ok=True)
    folder = base / "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    folder.mkdir()
    return folder
