"""What a field takes and within which bounds, in words, read from its annotation."""

from __future__ import annotations

import types
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AwareDatetime, BaseModel, SecretStr
from pydantic.fields import FieldInfo

from training.protocol.base import Name, Sha256

_NAMED = ((Name, "name"), (Sha256, "SHA-256"))
"""Whoever shows these says once what they are; their patterns are not repeated a field."""
_PLAIN = {
    bool: "true or false",
    int: "whole number",
    float: "number",
    str: "text",
    Decimal: "USD",
    timedelta: "seconds",
    AwareDatetime: "instant",
    SecretStr: "secret text",
    Path: "folder",
    Any: "anything",
}
_SIGNS = (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))


def describe_type(annotation: Any) -> str:
    """Errors: KeyError for a type that has no words here yet."""
    if _is_named(annotation):
        return next(word for known, word in _NAMED if known in (annotation, *get_args(annotation)))
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return describe_type(parts[0])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe_type(part) for part in parts if part is not type(None)))
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin is tuple:
        is_list = parts[-1] is Ellipsis
        return f"list of {describe_type(parts[0])}" if is_list else f"list of {len(parts)}: {describe_type(parts[0])}"
    if origin is dict:
        return f"mapping of {describe_type(parts[0])} to {describe_type(parts[1])}"
    return _describe_class(annotation)


def find_model(annotation: Any) -> type[BaseModel] | None:
    """The value that a field holds, if it holds one of its own fields."""
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def describe_bounds(annotation: Any) -> str:
    """Of the field itself, and of what it lists."""
    if _is_named(annotation):
        return ""
    own = _bounds_of(_metadata(annotation))
    bare = _strip(annotation)
    is_list = get_origin(bare) in (tuple, dict)
    words = [bound.replace("characters", "entries") for bound in own] if is_list else own
    if is_list and (inner := describe_bounds(get_args(bare)[-1 if get_origin(bare) is dict else 0])):
        words = [*words, f"each: {inner}"]
    return "; ".join(words)


def with_own_bounds(annotation: Any, field: FieldInfo) -> Any:
    """A field written as `num_nodes: int = Field(ge=1)` has its bounds beside the annotation, not in it."""
    return Annotated[annotation, *field.metadata] if field.metadata and not _is_named(annotation) else annotation


def _is_named(annotation: Any) -> bool:
    """Alone or beside None; not as the entry of a list."""
    parts = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else ()
    return any(known in (annotation, *parts) for known, _ in _NAMED)


def _describe_class(annotation: Any) -> str:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{member.value}`" for member in annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    return _PLAIN[annotation]


def _strip(annotation: Any) -> Any:
    """Without its metadata, and without None."""
    while get_origin(annotation) in (Annotated, Union, types.UnionType):
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    return annotation


def _metadata(annotation: Any) -> list[Any]:
    """All constraints of an annotation, those of `Annotated[Annotated[...], Field(...)]` included."""
    found: list[Any] = []
    while get_origin(annotation) in (Annotated, Union, types.UnionType):
        if get_origin(annotation) is Annotated:
            found += [deep for one in annotation.__metadata__ for deep in _unfold(one)]
        annotation = next(part for part in get_args(annotation) if part is not type(None))
    return found


def _unfold(one: Any) -> Sequence[Any]:
    return one.metadata if isinstance(one, FieldInfo) else (one,)


def _bounds_of(metadata: list[Any]) -> list[str]:
    words = [
        f"{sign} {_number(value)}"
        for name, sign in _SIGNS
        for one in metadata
        if (value := getattr(one, name, None)) is not None
    ]
    words += [f"≥ {one.min_length} characters" for one in metadata if (getattr(one, "min_length", None) or 0) > 1]
    words += [f"≤ {one.max_length:,} characters" for one in metadata if getattr(one, "max_length", None)]
    words += [f"`{one.pattern}`" for one in metadata if getattr(one, "pattern", None)]
    return list(dict.fromkeys(words))


def _number(value: Any) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():,.0f}"
    return f"{value:,}"
