"""Traces, only where an OpenTelemetry collector is configured."""

from __future__ import annotations

import os

from fastapi import FastAPI

ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
"""OpenTelemetry's own variable, which its exporter reads too; so it is no setting of ours."""


def install_tracing(app: FastAPI) -> None:
    """Spans go to the tracer provider that `opentelemetry-instrument` or the deployment sets up."""
    if not os.environ.get(ENDPOINT_VARIABLE):
        return
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor

    FastAPIInstrumentor.instrument_app(app, excluded_urls="livez,readyz,metrics")
