"""The API's description: problems instead of the framework's own validation errors, one scheme of keys."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from service.api.problems import ProblemBody


def install_openapi(app: FastAPI) -> None:
    framework = app.openapi

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = framework()
            schemas = schema.setdefault("components", {}).setdefault("schemas", {})
            problem = ProblemBody.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(problem.pop("$defs", {}))
            schemas["ProblemBody"] = problem
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]
