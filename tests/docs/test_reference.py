"""The reference is what the code says now, says it of everything, and its examples are accepted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from docs.generator.job_spec_page import EXAMPLES, EXAMPLES_FOLDER, list_models
from docs.generator.pages import FOLDER, PAGES
from service.cli.spec.build import SpecOptions, draft_spec
from training.protocol.job_spec import JobSpec
from training.protocol.train_spec import ModelSpec
from training.recipes import resolve_recipe

_MEANINGS = ("meaning", "what it does", "when", "what")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(name: str) -> None:
    written = (FOLDER / name).read_text(encoding="utf-8")
    assert written == PAGES[name](), f"docs/reference/{name} is not current: run 'make docs' and commit what it writes"


@pytest.mark.parametrize("name", PAGES)
def test_every_entry_of_a_table_has_its_meaning(name: str) -> None:
    empty = [row for row, meaning in _read_meanings(PAGES[name]()) if not meaning]
    assert empty == []


def _read_meanings(page: str) -> Iterator[tuple[str, str]]:
    """Each row of each table, with what its column of meanings says."""
    place = None
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.replace("\\|", "").split("|")]
        if not line.startswith("|"):
            place = None
        elif place is None:
            place = next(cells.index(word) for word in _MEANINGS if word in cells)
        elif set(line) > {"-"}:
            yield line, cells[place]


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_accepted(name: str) -> None:
    spec = _read_example(name)
    if spec.train is not None:
        resolve_recipe(spec.train)


def test_the_examples_set_every_field() -> None:
    told = {place for name in EXAMPLES for place in _list_places(_read_example(name).model_dump(exclude_unset=True))}
    models = [("", JobSpec), *((place, model) for place, model in list_models() if model is not ModelSpec)]
    known = {f"{place}.{field}".removeprefix(".") for place, model in models for field in model.model_fields}
    assert known - told == set()


def _read_example(name: str) -> JobSpec:
    return draft_spec(str(EXAMPLES_FOLDER / name), SpecOptions(), lambda secret: f"value of {secret}").spec


def _list_places(fields: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in fields.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _list_places(value, f"{prefix}{name}.")
