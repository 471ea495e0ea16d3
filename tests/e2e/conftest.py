"""Running services, shared by the tests of a module; each test finds every process alive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.stack import Stack, run_stack


@pytest.fixture(scope="session")
def shared_stack() -> Iterator[Stack]:
    with run_stack() as stack:
        yield stack


@pytest.fixture
def stack(shared_stack: Stack) -> Stack:
    """A small service on SQLite, whose jobs do not meet."""
    shared_stack.heal()
    return shared_stack
