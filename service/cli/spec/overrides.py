"""`--set train.steps=300`: one field of a spec from the command line."""

from __future__ import annotations

from service.cli.errors import BadInput
from service.cli.spec.yaml_file import parse_yaml

_EXAMPLE = "write --set FIELD=VALUE, such as --set train.steps=300"


def apply_overrides(spec: dict[str, object], overrides: list[str]) -> dict[str, object]:
    """A new mapping; later overrides win. The value is read as YAML; an empty one is null. Errors: BadInput."""
    for override in overrides:
        path, separator, text = override.partition("=")
        parts = path.split(".")
        if not separator or not all(parts):
            raise BadInput(f"--set {override}: not of the form FIELD=VALUE", remedy=_EXAMPLE)
        spec = _with_value(spec, parts, parse_yaml(text, f"--set {path}"), path)
    return spec


def nested(overrides: list[str]) -> dict[str, object]:
    """The overrides alone, as a merge patch."""
    return apply_overrides({}, overrides)


def _with_value(spec: dict[str, object], parts: list[str], value: object, path: str) -> dict[str, object]:
    head, *rest = parts
    if not rest:
        return spec | {head: value}
    inner = spec.get(head)
    if inner is None:
        inner = {}
    if not isinstance(inner, dict):
        raise BadInput(f"--set {path}: '{head}' is not a mapping", remedy=_EXAMPLE)
    return spec | {head: _with_value(inner, rest, value, path)}
