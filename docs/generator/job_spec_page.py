"""job-spec.md: every field of a job spec, and two examples that together set each of them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from docs.generator.field_types import describe_bounds, describe_type, find_model, with_own_bounds
from docs.generator.markdown import code, fenced, page, table
from training.protocol.job_spec import RESERVED_ENV_PREFIX, JobSpec
from training.protocol.train_spec import ModelSpec
from training.recipes import RECIPES

EXAMPLES_FOLDER = Path(__file__).parents[1] / "reference" / "examples"
EXAMPLES = ("run.yaml", "train.yaml")
_TEXT = f"""\
A job spec is YAML on the command line and JSON over the API. Unknown fields are an error. `godwit submit FILE --dry-run`
checks one; `--set train.steps=300` overrides one field. Give exactly one of `train` and `run`.

Money is US dollars; quote it in YAML (`"3.00"`). Times are seconds or ISO 8601 durations (`PT15M`); instants have a zone
(`2030-01-31T12:00:00Z`). A name is at most 63 lower-case letters, digits, `.`, `_` and `-`, and begins and ends with a letter
or a digit. Variables in `env` and `secrets` must not begin with `{RESERVED_ENV_PREFIX}`.

On the command line `workdir` is a folder, which is bundled and uploaded, and `secrets` may be a list of names, whose values
come from your environment or are asked for. Over the API they are a bundle's digest and a mapping."""
_MODEL = "train.model"
"""Held as plain entries, so that a recipe's fields can be overridden one by one."""
_COLUMNS = ("field", "takes", "bounds", "default", "meaning")


def write_job_spec() -> str:
    examples = (fenced((EXAMPLES_FOLDER / name).read_text(encoding="utf-8"), "yaml") for name in EXAMPLES)
    return page(
        "Job spec",
        _TEXT,
        _fields("", JobSpec),
        *(block for place, model in list_models() for block in (f"## {place}", _summary(model), _fields(place, model))),
        "## train.recipe",
        table(("recipe", "what"), [(code(name), make().description) for name, make in RECIPES.items()]),
        "## Examples",
        *examples,
    )


def list_models(place: str = "", model: type[BaseModel] = JobSpec) -> Iterator[tuple[str, type[BaseModel]]]:
    """Each mapping in the spec by its dotted name, and what is in it after it."""
    hints = get_type_hints(model)
    for name in model.model_fields:
        inner, full = find_model(hints[name]), f"{place}.{name}".removeprefix(".")
        found = ModelSpec if full == _MODEL else inner
        if found is not None:
            yield full, found
            yield from list_models(full, found)


def _summary(model: type[BaseModel]) -> str:
    """Its docstring's first paragraph."""
    return " ".join((model.__doc__ or "").split("\n\n")[0].split())


def _fields(place: str, model: type[BaseModel]) -> str:
    hints = get_type_hints(model, include_extras=True)
    return table(_COLUMNS, [_row(place, name, field, hints[name]) for name, field in model.model_fields.items()])


def _row(place: str, name: str, field: FieldInfo, hint: Any) -> tuple[str, ...]:
    full = f"{place}.{name}".removeprefix(".")
    bounds = describe_bounds(with_own_bounds(hint, field))
    default = "" if place == _MODEL else _default(field)  # a recipe sets all of it
    return (code(name), _link(full) or describe_type(hint), bounds, default, field.description or "")


def _link(full: str) -> str:
    """To the section of a field that has one."""
    return f"[mapping](#{full.replace('.', '')})" if full in dict(list_models()) else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if default is None or isinstance(default, BaseModel) or default in ((), {}):
        return ""
    if isinstance(default, Enum):
        return code(default.value)
    return code(TypeAdapter(type(default)).dump_json(default).decode().strip('"'))
