"""settings.md: the service's variables, and the command line's own."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from docs.generator.field_types import describe_bounds, describe_type, with_own_bounds
from docs.generator.markdown import code, page, table
from service.api.telemetry import ENDPOINT_VARIABLE
from service.cli.config import KEY_VARIABLE, URL_VARIABLE
from service.settings import Settings
from service.supervisor.environment import LAPTOP_DEFAULTS

_TEXT = """\
The service reads its settings from the environment; a wrong one is named when it starts. Times are seconds (`900`) or
ISO 8601 durations (`PT15M`). `godwit up` and `godwit demo` set times fit for one machine where nothing was set; the last
column has them."""
_OTHERS = (
    (URL_VARIABLE, "where the service is; goes before what `godwit login` saved"),
    (KEY_VARIABLE, "the API key; goes before what `godwit login` saved"),
    (ENDPOINT_VARIABLE, "service and OpenTelemetry: where traces are sent; none: no traces"),
)
_RANKS = "What the ranks of a job find in their environment is in [the ranks' contract](rank-contract.md)."


def write_settings() -> str:
    hints = get_type_hints(Settings, include_extras=True)
    rows = [_row(name, field, hints[name]) for name, field in Settings.model_fields.items()]
    others = table(("variable", "meaning"), [(code(name), meaning) for name, meaning in _OTHERS])
    columns = ("variable", "meaning", "takes", "default", "`godwit up`")
    return page("Settings", _TEXT, table(columns, rows), "## Besides", others, _RANKS)


def _row(name: str, field: FieldInfo, hint: Any) -> tuple[str, ...]:
    variable = f"GODWIT_{name.upper()}"
    takes = ", ".join(part for part in (describe_type(hint), _bounds(hint, field)) if part)
    return (code(variable), field.description or "", takes, code(_show(field.default)), code(_laptop(variable, hint)))


def _bounds(hint: Any, field: FieldInfo) -> str:
    """A span's bound is the same for all, and odd to read."""
    return "" if isinstance(field.default, timedelta) else describe_bounds(with_own_bounds(hint, field))


def _show(default: object) -> str:
    if default is None:
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, timedelta):
        return TypeAdapter(timedelta).dump_json(default).decode().strip('"')
    if isinstance(default, Path) and default.is_relative_to(Path.home()):
        return f"~/{default.relative_to(Path.home())}"
    return str(default)


def _laptop(variable: str, hint: Any) -> str:
    text = LAPTOP_DEFAULTS.get(variable)
    return "" if text is None else _show(TypeAdapter(hint).validate_python(text))
