"""The API under test: in process, and as a real server process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from service.app import create_app
from service.context import Context
from service.db.session import session_scope
from service.keys.service import create_first_key
from service.settings import Settings
from tests.service.api.stand import Stand


@pytest.fixture
def woken() -> list[str]:
    """The jobs that the API announced."""
    return []


@pytest.fixture
def app(settings: Settings, woken: list[str]) -> FastAPI:
    return create_app(settings, wake=woken.append)


@pytest.fixture
def key(settings: Settings, context: Context) -> str:
    """The first admin key."""
    del settings
    with session_scope(context.sessions) as session:
        made = create_first_key(session, now=context.clock())
    assert made is not None
    return made


@pytest.fixture
def client(app: FastAPI, key: str) -> Iterator[TestClient]:
    """Speaks with the first admin key."""
    with TestClient(app, headers={"Authorization": f"Bearer {key}"}, raise_server_exceptions=False) as opened:
        yield opened


@pytest.fixture
def spec() -> dict[str, Any]:
    """A job that any service takes."""
    return {"name": "my-job", "run": "python train.py", "budget": {"cap_usd": "10"}}


@pytest.fixture
def stand(context: Context) -> Stand:
    """Writes what the reconciler and the nodes would have written."""
    return Stand(context=context)
