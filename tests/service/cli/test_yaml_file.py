"""Hostile and mistaken YAML ends in one clear refusal."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.cli.errors import BadInput
from service.cli.spec.yaml_file import MAX_BYTES, parse_yaml, read_mapping

BOMB = "a: &a [x, x]\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\nd: [*c, *c, *c, *c]\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "aliases"),
        ("a: " + "[" * 40 + "]" * 40, "levels"),
        ("a: [" + "1," * 60_000 + "]", "levels or"),
        ("name: one\nname: two\n", "'name' is there twice"),
        ("a: {b: 1, b: 2}", "'b' is there twice"),
        ("a: b\0c", "NUL"),
        ('a: "b\\0c"', "character"),
        ('a: "\\ud800"', "character"),
        ("1: one", "put it in quotes"),
        ("on: one", "put it in quotes"),
        ("a: !!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("a: !!binary aGVsbG8=", "could not determine a constructor"),
        ("a: 2026-13-45", "cannot be read"),
        ("a: " + "9" * 5000, "cannot be read"),
        ("a: [1, 2", "line 1"),
        ("a:\n\t- b", "line 2"),
        ("a: 1\n---\nb: 2", "document"),
    ],
)
def test_what_is_refused_is_named(text: str, words: str) -> None:
    with pytest.raises(BadInput) as refusal:
        parse_yaml(text, "job.yaml")
    assert words in refusal.value.message
    assert "job.yaml" in refusal.value.message
    assert refusal.value.remedy


def test_plain_values_are_read() -> None:
    text = "name: my-job\nsteps: 3\nrate: 1.5e-3\nis_on: true\nnothing:\nlist: [a, 'b']\n"
    assert parse_yaml(text, "x") == {
        "name": "my-job",
        "steps": 3,
        "rate": 0.0015,
        "is_on": True,
        "nothing": None,
        "list": ["a", "b"],
    }


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=300), st.text(alphabet="{}[]:,&*!|>-?'\"%@`# \n\tab1.~<=", max_size=60)))
def test_no_text_does_anything_else_than_parse_or_be_refused(text: str) -> None:
    with suppress(BadInput):
        parse_yaml(text, "x")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"- a\n- b\n", b"", b"just words", b"x" * (MAX_BYTES + 1)])
def test_files_that_are_no_spec_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"job\.yaml"):
        read_mapping(str(path))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file"):
        read_mapping(str(tmp_path / "none.yaml"))
    with pytest.raises(BadInput, match="directory"):
        read_mapping(str(tmp_path))
