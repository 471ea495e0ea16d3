"""YAML from a file that may be hostile: bounded in size, depth and count, without aliases, duplicates or objects."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from pathlib import Path

import yaml

from service.cli.errors import BadInput

MAX_BYTES = 1_048_576
MAX_DEPTH = 32
MAX_NODES = 50_000

_NOT_A_MAPPING = "a job spec is a mapping of fields, such as 'name: my-job'"


def read_mapping(path: str) -> dict[str, object]:
    """The mapping in the file at `path` (`-` is standard input). Errors: BadInput, naming the file and the line."""
    value = parse_yaml(_read(path), path)
    if not isinstance(value, dict):
        raise BadInput(f"{path}: {_NOT_A_MAPPING}", remedy="see examples/ for specs to start from")
    return value


def parse_yaml(text: str, source: str) -> object:
    """Plain values only: dict with string keys, list, str, int, float, bool, None, date. Errors: BadInput."""
    if "\0" in text:
        raise BadInput(f"{source}: NUL characters are not allowed", remedy="save the file as plain UTF-8 text")
    try:
        _check_bounds(text, source)
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader with more refusals
    except yaml.YAMLError as error:
        raise BadInput(f"{source}: {_explain(error)}", remedy="correct the YAML at that line") from error
    except (ValueError, OverflowError, RecursionError, TypeError) as error:
        raise BadInput(f"{source}: a value cannot be read: {str(error)[:200]}", remedy="put text in quotes") from error


def _read(path: str) -> str:
    try:
        if path == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise BadInput(
            f"{path}: {error.strerror or error}", remedy="name a job spec in YAML, or - for stdin"
        ) from error
    except ValueError as error:
        raise BadInput(f"{path}: not a file of UTF-8 text", remedy="save it as UTF-8") from error
    if len(data) > MAX_BYTES:
        raise BadInput(f"{path}: larger than {MAX_BYTES:,} bytes", remedy="files of a job travel in 'workdir'")
    return text


def _check_bounds(text: str, source: str) -> None:
    """One pass over the parser's events, before anything is built."""
    depth = 0
    for nodes, event in enumerate(yaml.parse(text, Loader=yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent):
            line = event.start_mark.line + 1
            raise BadInput(f"{source}:{line}: aliases (*{event.anchor}) are not allowed", remedy="write the value out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH or nodes > MAX_NODES:
            raise BadInput(
                f"{source}: more than {MAX_DEPTH} levels or {MAX_NODES:,} values", remedy="a job spec is a small file"
            )
        if isinstance(event, yaml.ScalarEvent) and not _is_text(event.value):
            line = event.start_mark.line + 1
            raise BadInput(f"{source}:{line}: a character that no UTF-8 text has", remedy="remove the escape")


def _is_text(value: str) -> bool:
    return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)


def _explain(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    text = "".join(c if c.isprintable() else "?" for c in str(problem))[:300]
    return f"line {mark.line + 1}, column {mark.column + 1}: {text}" if mark else text


class _StrictLoader(yaml.SafeLoader):
    """Refuses what SafeLoader lets pass: duplicate keys, and keys that are not text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {str(key)[:50]!r} is not text; put it in quotes", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key[:50]!r} is there twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


_StrictLoader.yaml_constructors = {
    tag: constructor
    for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.rsplit(":", 1)[-1] in ("null", "bool", "int", "float", "timestamp", "seq", "str", "map")
}
