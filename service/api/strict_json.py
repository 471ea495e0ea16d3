"""JSON as the API takes it: bounded depth, finite numbers, no NUL, no duplicate or unpaired anything."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from fastapi import Request

from service.api.problems import Problem, invalid

MAX_DEPTH = 32
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)  # an open end too: never scanned twice
_BRACKET = re.compile(rb"[\[\]{}]")


class StrictRequest(Request):
    """A request whose `json()` refuses what the service does not take. Errors: Problem 422."""

    async def json(self) -> Any:
        return parse_json(await self.body())


def parse_json(raw: bytes) -> Any:
    """Errors: Problem 422, naming the field where there is one."""
    _check_depth(raw)
    try:
        value = json.loads(raw, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except Problem:
        raise
    except ValueError as error:
        remedy = "Send valid JSON (UTF-8) as application/json."
        raise Problem(422, "invalid_json", "The body is not valid JSON.", remedy=remedy) from error
    _check_values(value, ())
    return value


def _check_depth(raw: bytes) -> None:
    """Before parsing, so that no parser recurses deeply."""
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub(b"", raw)):
        depth += 1 if bracket in b"[{" else -1
        if depth > MAX_DEPTH:
            raise Problem(422, "invalid_json", f"The body is nested deeper than {MAX_DEPTH} levels.")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise invalid(twice[:128], "appears twice in one object", "Give each field once.")
    return found


def _refuse_constant(name: str) -> Any:
    raise Problem(422, "invalid_json", f"{name} is not JSON.", remedy="Give a finite number.")


def _check_values(value: Any, path: tuple[str, ...]) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _check_text(key, path)
            _check_values(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_values(item, (*path, str(index)))
    elif isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, float) and not math.isfinite(value):
        raise invalid(".".join(path), "must be a finite number")


def _check_text(text: str, path: tuple[str, ...]) -> None:
    if "\0" in text:
        raise invalid(".".join(path) or "body", "NUL characters are not allowed", "Remove the NUL.")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise invalid(".".join(path) or "body", "unpaired surrogates are not text", "Send valid Unicode.")
