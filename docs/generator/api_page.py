"""api.md: every operation of the API, with the role that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_type_hints

from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from docs.generator.markdown import code, page, table
from service.api.auth import Admin, Operator, Viewer
from service.app import create_app
from service.settings import Settings

_TEXT = """\
`/openapi.json` describes requests and answers in full; `/docs` shows it. Send `Authorization: Bearer gdw_…`. Each role may
do what the ones before it may: viewer, operator, admin. Creates take an `Idempotency-Key`; changes by `PATCH` need
`If-Match` with the `ETag` last seen; lists take `limit` and `cursor`. Errors are RFC 9457 problems with a stable `code`, a
`remedy`, and an entry a field in `errors`."""
_ROLES = ((Viewer, "viewer"), (Operator, "operator"), (Admin, "admin"))


def write_api() -> str:
    with TemporaryDirectory() as folder:  # for the key that a service makes for itself; it connects to nothing
        app = create_app(Settings.model_construct(data_dir=Path(folder)))  # of no environment
        sections = _read_sections(app)
    columns = ("operation", "role", "what it does")
    return page(
        "API",
        _TEXT,
        *(block for tag, rows in sections.items() for block in (f"## {tag.capitalize()}", table(columns, rows))),
    )


def _read_sections(app: FastAPI) -> dict[str, list[tuple[str, ...]]]:
    roles = _read_roles(app)
    sections: dict[str, list[tuple[str, ...]]] = {}
    for method, path, operation in _list_operations(app):
        role = roles[method, path] or _other_role(operation)
        summary = operation.get("description", "").split("\n\n")[0]
        sections.setdefault(operation["tags"][0], []).append((code(f"{method} {path}"), role, summary))
    return sections


def _list_operations(app: FastAPI) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, operations in app.openapi()["paths"].items():
        for method, operation in operations.items():
            yield method.upper(), path, operation


def _read_roles(app: FastAPI) -> dict[tuple[str, str], str]:
    """By method and path; empty where an endpoint asks for no role."""
    return {
        (method, route.path_format): _role_of(route.endpoint)
        for route in iter_route_contexts(app.routes)
        if route.path_format is not None
        for method in route.methods or ()
    }


def _role_of(endpoint: Any) -> str:
    hints = get_type_hints(endpoint, include_extras=True)
    return next((role for known, role in _ROLES if known in hints.values()), "")


def _other_role(operation: dict[str, Any]) -> str:
    schemes = {name for scheme in operation.get("security", ()) for name in scheme}
    return "a node's token" if "nodeToken" in schemes else "any key" if schemes else "none"
