"""The description is true: generated requests, good and bad, get only documented answers."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
BOUNDED = settings(
    max_examples=8,
    deadline=None,
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
STREAMS = r"/stream$"
"""They do not end by themselves; test_streams.py has them."""


@schemathesis.serializer("application/gzip")
def write_gzip(_context: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


@pytest.fixture
def calls(app: FastAPI, client: TestClient, spec: dict[str, Any]) -> Any:
    """Every operation but the streams, asked of a service that holds a job."""
    del client, spec
    return schemathesis.openapi.from_asgi("/openapi.json", app).exclude(path_regex=STREAMS)


def test_generated_requests_get_only_documented_answers(calls: Any, key: str) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    failures: list[str] = []
    for result in calls.get_all_operations():
        operation = result.ok()
        failures += _try(operation, headers)
    assert failures == []


def _try(operation: Any, headers: dict[str, str]) -> list[str]:
    """The first findings of good and of bad requests to one operation."""
    failures: list[str] = []

    def check(case: Any) -> None:
        answer = case.call(headers=headers)
        try:
            case.validate_response(answer, checks=CHECKS)
        except Exception as error:
            failures.append(f"{operation.label}: {str(error)[:600]}")

    for mode in GenerationMode:
        with suppress(Unsatisfiable):  # an operation without parameters has no bad requests
            BOUNDED(given(case=operation.as_strategy(generation_mode=mode))(check))()
    return failures[:3]


def test_every_operation_is_described(app: FastAPI, client: TestClient) -> None:
    del client
    ids = []
    for path, operations in app.openapi()["paths"].items():
        for operation in operations.values():
            ids.append(operation["operationId"])
            assert operation["tags"], path
            if path.startswith("/v1"):
                assert operation["security"], path
                assert {"401", "422", "503"} <= set(operation["responses"]), path
    assert len(ids) == len(set(ids))
