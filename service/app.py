"""The composition root of the API."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

import anyio.to_thread
from fastapi import FastAPI
from fastapi.routing import APIRoute
from sqlalchemy import Engine

from service.agents.presence import keep_presence
from service.api.access_log import AccessLog
from service.api.limits import BodyLimit
from service.api.openapi import install_openapi
from service.api.problems import install_handlers
from service.api.rate_limit import RateLimiter
from service.api.shutdown import announced_shutdown
from service.api.telemetry import install_tracing
from service.clock import Clock, system_clock
from service.context import make_context
from service.health.figures import Figures
from service.log_setup import set_up_logs
from service.settings import Settings
from service.wakeup import Waker

BUNDLES_PATH = "/v1/bundles"
_PRESENCE_SECONDS = 5.0
"""For the last word of the presence thread; it is not waited for longer while the database is away."""
_FEATURES = (
    "projects",
    "keys",
    "jobs",
    "budgets",
    "checkpoints",
    "metrics",
    "logs",
    "outputs",
    "events",
    "bundles",
    "prices",
    "webhooks",
    "agents",
    "health",
)


def create_app(
    settings: Settings | None = None, *, clock: Clock = system_clock, wake: Callable[[str], None] | None = None
) -> FastAPI:
    """The whole API. Connects to nothing until the first request. Errors: ValidationError for bad settings."""
    settings = settings or Settings()
    app = FastAPI(
        title="Godwit",
        version=_version(),
        description="Train language models on interruptible machines, inside a budget that holds.",
        lifespan=_lifespan,
        generate_unique_id_function=_operation_id,
        redirect_slashes=False,
    )
    app.state.context = make_context(settings, clock=clock, wake=wake or Waker(settings.broker))
    app.state.rate_limiter = RateLimiter()
    app.state.closing = threading.Event()
    app.state.metrics = Figures()
    install_handlers(app)
    for feature in _FEATURES:
        app.include_router(import_module(f"service.{feature}.endpoints").router)
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes, by_path={BUNDLES_PATH: settings.max_bundle_bytes})
    app.add_middleware(AccessLog, latency=app.state.metrics.latency)
    install_openapi(app)
    install_tracing(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    context = app.state.context
    set_up_logs(context.settings.log_level)
    presence = keep_presence(context, app.state.closing)
    with announced_shutdown(app.state.closing):
        yield
    app.state.closing.set()
    await anyio.to_thread.run_sync(presence.join, _PRESENCE_SECONDS)
    engine = app.state.context.sessions.kw["bind"]
    assert isinstance(engine, Engine)
    engine.dispose()


def _operation_id(route: APIRoute) -> str:
    return route.name.removesuffix("_endpoint")


def _version() -> str:
    try:
        return version("godwit")
    except PackageNotFoundError:
        return "0"
