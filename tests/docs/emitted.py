"""Which kinds of event the sources can emit, read from their syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from service.domain.states import JobStatus
from service.webhooks.service import TEST_EVENT

ROOT = Path(__file__).parents[2]
_COMPUTED = {
    "TEST_EVENT": {TEST_EVENT},
    "f'job.{status}'": {f"job.{status}" for status in JobStatus},
}
"""Kinds that are no plain text in the source, as `ast.unparse` writes them."""


def list_emitted_kinds() -> set[str]:
    """Errors: ValueError for a kind that cannot be read off the source; teach this module, or spell it out."""
    kinds: set[str] = set()
    for path in sorted(path for folder in ("service", "worker") for path in (ROOT / folder).rglob("*.py")):
        kinds |= _kinds_in(ast.parse(path.read_text()), path.name)
    return kinds


def _kinds_in(tree: ast.Module, name: str) -> set[str]:
    """Of `emit` itself, and of the module's functions that pass a `kind` of their own on to it."""
    if name == "outbox.py":
        return set()
    wrappers = {node.name: _place_of_kind(node) for node in _functions(tree) if _place_of_kind(node) is not None}
    kinds: set[str] = set()
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        assert isinstance(call.func, ast.Name)
        if call.func.id == "emit" or call.func.id in wrappers:
            kinds |= _read(_kind_of(call, wrappers.get(call.func.id)), bool(wrappers), name)
    return kinds


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _place_of_kind(function: ast.FunctionDef) -> int | None:
    """Where a wrapper of `emit` takes its kind."""
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    passes_on = any(
        isinstance(call.func, ast.Name) and call.func.id == "emit" and _is_parameter(_kind_of(call, None))
        for call in calls
    )
    names = [argument.arg for argument in function.args.args]
    return names.index("kind") if passes_on and "kind" in names else None


def _kind_of(call: ast.Call, place: int | None) -> ast.expr:
    for keyword in call.keywords:
        if keyword.arg == "kind":
            return keyword.value
    if place is None:
        raise ValueError(f"line {call.lineno}: emit without a kind")
    return call.args[place]


def _is_parameter(kind: ast.expr) -> bool:
    return isinstance(kind, ast.Name) and kind.id == "kind"


def _read(kind: ast.expr, has_wrapper: bool, name: str) -> set[str]:
    if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
        return {kind.value}
    if isinstance(kind, ast.IfExp):
        return _read(kind.body, has_wrapper, name) | _read(kind.orelse, has_wrapper, name)
    if has_wrapper and _is_parameter(kind):
        return set()  # the wrapper's own call; its callers say which
    if (text := ast.unparse(kind)) in _COMPUTED:
        return _COMPUTED[text]
    raise ValueError(f"{name}:{kind.lineno}: cannot tell which events {text} is")
