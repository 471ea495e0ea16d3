"""The daemon's HTTP application: the provider's verbs under `/v1`, and each node's metadata under `/nodes`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import TypeAdapter

from training.protocol.base import Name
from worker.provision.local.cloud import Cloud
from worker.provision.local.guard import Guard
from worker.provision.local.metadata import add_metadata_services
from worker.provision.local.wire import (
    LAUNCH_REFUSED,
    NO_CAPACITY,
    NOT_FOUND,
    OBSERVATION,
    OFFERS,
    QUOTES,
    SUMMARIES,
    InterruptBody,
    LaunchBody,
    Problem,
    TerminateAnswer,
)
from worker.provision.protocol import LaunchRefused, NoCapacity, ProvisionError

T = TypeVar("T")


def make_app(cloud: Cloud, token: str, clock: Callable[[], datetime], on_launch: Callable[[], None]) -> FastAPI:
    """`on_launch` is called after each accepted launch: the sweep need not wait for its turn."""
    app = FastAPI(title="Godwit local cloud", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(Guard, token=token)
    add_metadata_services(app, cloud, token.encode(), clock)
    _add_error_handlers(app)

    @app.post("/v1/clusters", status_code=202)
    def launch(body: LaunchBody) -> None:
        cloud.launch(body, clock())
        on_launch()

    @app.get("/v1/clusters")
    def list_clusters() -> Response:
        return _answer(SUMMARIES, list(cloud.list_clusters()))

    @app.get("/v1/clusters/{cluster_name}")
    def observe(cluster_name: Name, is_forced: bool = False) -> Response:
        return _answer(OBSERVATION, cloud.observe(cluster_name, clock(), is_forced=is_forced))

    @app.delete("/v1/clusters/{cluster_name}")
    def terminate(cluster_name: Name) -> TerminateAnswer:
        return TerminateAnswer(is_gone=cloud.terminate(cluster_name, clock()))

    @app.post("/v1/clusters/{cluster_name}/nodes/{node_rank}/interrupt", status_code=204)
    def interrupt(cluster_name: Name, node_rank: int, body: InterruptBody) -> None:
        cloud.interrupt(cluster_name, node_rank, clock(), has_notice=body.has_notice)

    @app.get("/v1/offers")
    def list_offers() -> Response:
        return _answer(OFFERS, list(cloud.list_offers()))

    @app.get("/v1/quotes")
    def list_quotes() -> Response:
        return _answer(QUOTES, list(cloud.list_quotes(clock())))

    return app


def _answer(adapter: TypeAdapter[T], value: T) -> Response:
    return Response(adapter.dump_json(value), media_type="application/json")


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(ProvisionError)
    def on_provision_error(_request: Request, error: Exception) -> JSONResponse:
        status, kind = 404, NOT_FOUND
        if isinstance(error, NoCapacity):
            status, kind = 409, NO_CAPACITY
        elif isinstance(error, LaunchRefused):
            status, kind = 422, LAUNCH_REFUSED
        return _problem(status, kind, str(error))

    @app.exception_handler(RequestValidationError)
    def on_invalid(_request: Request, error: Exception) -> JSONResponse:
        """Where and why, never the input: it may hold secrets."""
        errors = error.errors() if isinstance(error, RequestValidationError) else ()
        places = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in errors[:10]]
        return _problem(422, LAUNCH_REFUSED, "; ".join(places))

    @app.exception_handler(OSError)
    def on_os_error(_request: Request, error: Exception) -> JSONResponse:
        """This machine is at fault (disk full, no ports): the same request may succeed later."""
        return _problem(503, "unavailable", getattr(error, "strerror", None) or type(error).__name__)


def _problem(status: int, kind: str, detail: str) -> JSONResponse:
    return JSONResponse(Problem(type=kind, detail=detail).model_dump(), status_code=status)
