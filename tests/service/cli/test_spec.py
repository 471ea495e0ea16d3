"""A spec file and options as one job spec."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from service.cli.errors import BadInput
from service.cli.spec.build import DraftSpec, SpecOptions, draft_spec, to_body

SPEC = "name: my-job\nrun: python train.py\n"


def no_secrets(name: str) -> str:
    raise AssertionError(f"nobody asked for {name}")


def draft(tmp_path: Path, text: str, **options: object) -> DraftSpec:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    read_secret = options.pop("read_secret", no_secrets)
    return draft_spec(str(path), SpecOptions(**options), read_secret)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("name: my-job\nrun: x\nbugdet: 3\n", "bugdet"),
        ("name: ../etc\nrun: x\n", "name"),
        ("name: a\nrun: x\nresources: {num_nodes: 10000}\n", "resources.num_nodes"),
        ("name: a\nrun: x\nbudget: {cap_usd: .nan}\n", "budget.cap_usd"),
        ("name: a\nrun: x\nbudget: {cap_usd: -1}\n", "budget.cap_usd"),
        ("name: a\nrun: x\nenv: {A: 1}\n", "env.A"),
        ("name: a\nrun: x\ndeadline: 2030-01-01T00:00:00\n", "deadline"),
        ("name: a\n", "spec"),
        ("run: x\n", "name"),
    ],
)
def test_each_wrong_field_is_named_with_a_remedy(tmp_path: Path, text: str, field: str) -> None:
    with pytest.raises(BadInput) as refusal:
        draft(tmp_path, text)
    assert [error.field for error in refusal.value.errors] == [field]
    assert all(error.remedy for error in refusal.value.errors)


def test_options_rule_over_the_file(tmp_path: Path) -> None:
    spec = draft(tmp_path, SPEC, name="other", budget_usd="2.50", overrides=("resources.num_nodes=2", "env.A='1'")).spec
    assert (spec.name, spec.resources.num_nodes, spec.env) == ("other", 2, {"A": "1"})
    assert spec.budget is not None
    assert str(spec.budget.cap_usd) == "2.50"


@pytest.mark.parametrize("override", ["steps", "=1", "name.inner=1", "a..b=1", "env=[1, 2"])
def test_bad_overrides_are_refused(tmp_path: Path, override: str) -> None:
    with pytest.raises(BadInput, match="--set"):
        draft(tmp_path, SPEC, overrides=(override,))


def test_secrets_come_from_elsewhere_and_show_nowhere(tmp_path: Path) -> None:
    result = draft(tmp_path, SPEC + "secrets: [ONE]\n", secret_names=("TWO",), read_secret=lambda name: f"{name}-value")
    assert result.spec.secrets == {"ONE": SecretStr("ONE-value"), "TWO": SecretStr("TWO-value")}
    assert "value" not in repr(result)
    assert to_body(result.spec)["secrets"] == {"ONE": "ONE-value", "TWO": "TWO-value"}


def test_a_wrong_secret_is_not_repeated_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as refusal:
        draft(tmp_path, SPEC + "secrets: {TOKEN: [hunter2]}\n")
    assert "hunter2" not in repr(refusal.value.errors) + str(refusal.value)


def test_a_folder_is_relative_to_the_spec(tmp_path: Path) -> None:
    result = draft(tmp_path, SPEC + "workdir: code\n")
    assert result.folder == tmp_path / "code"
    digest = "a" * 64
    assert draft(tmp_path, SPEC + f"workdir: {digest}\n").folder is None


def test_the_body_holds_only_what_was_set(tmp_path: Path) -> None:
    text = SPEC + "checkpoint: {every: 30}\nbudget: {cap_usd: '3.00'}\n"
    assert to_body(draft(tmp_path, text).spec) == {
        "name": "my-job",
        "run": "python train.py",
        "checkpoint": {"every": 30.0},
        "budget": {"cap_usd": "3.00"},
    }
