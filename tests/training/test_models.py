"""Shapes, counts and causality of the recipes' models."""

from __future__ import annotations

import pytest
import torch

from training.model.count import count_parameters, hidden_width
from training.model.gpt import Gpt
from training.model.layers import rotary_tables, rotate
from training.protocol.train_spec import ModelSpec
from training.recipes import RECIPES

SMALL = {"d_model": 32, "num_layers": 2, "num_heads": 4, "context_length": 16, "vocab_size": 300}
VARIANTS = [
    {"positions": positions, "norm": norm, "activation": activation, "is_tied": is_tied}
    for positions, norm, activation, is_tied in [
        ("learned", "layer_norm", "gelu", False),
        ("rotary", "rms_norm", "swiglu", True),
        ("rotary", "layer_norm", "gelu", True),
        ("learned", "rms_norm", "swiglu", False),
    ]
]


@pytest.mark.parametrize(
    ("recipe", "millions"),
    [("gpt_1b", 759.9), ("tiny", 137.0), ("medium", 371.5), ("large", 1091.8), ("xlarge", 1509.2), ("nano_gpt", None)],
)
def test_recipes_have_their_stated_size(recipe: str, millions: float | None) -> None:
    spec = RECIPES[recipe]().model
    with torch.device("meta"):
        built = sum(parameter.numel() for parameter in Gpt(spec).parameters())
    assert count_parameters(spec) == built
    assert millions is None or round(built / 1e6, 1) == millions


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_count_by_arithmetic_is_exact(variant: dict[str, str | bool]) -> None:
    spec = ModelSpec.model_validate(SMALL | variant)
    assert count_parameters(spec) == sum(parameter.numel() for parameter in Gpt(spec).parameters())


def test_the_gated_width_is_llamas() -> None:
    spec = ModelSpec(d_model=4096, num_layers=1, num_heads=32, context_length=8, vocab_size=300, activation="swiglu")
    assert hidden_width(spec) == 11_008


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_position_sees_a_later_token(variant: dict[str, str | bool]) -> None:
    model = Gpt(ModelSpec.model_validate(SMALL | variant)).eval()
    ids = torch.randint(0, 300, (2, 16))
    changed = ids.clone()
    changed[:, 9] = (changed[:, 9] + 1) % 300
    with torch.no_grad():
        before, after = model(ids), model(changed)
    torch.testing.assert_close(before[:, :9], after[:, :9], rtol=0, atol=1e-6)
    assert not torch.allclose(before[:, 9:], after[:, 9:], atol=1e-6)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_order_matters(positions: str) -> None:
    model = Gpt(ModelSpec.model_validate(SMALL | {"positions": positions, "num_layers": 1})).eval()
    with torch.no_grad():
        logits = model(torch.tensor([[5, 6, 7], [6, 5, 7]]))
    assert not torch.equal(logits[0, -1], logits[1, -1])


def test_rotary_products_depend_on_the_distance_alone() -> None:
    cos, sin = rotary_tables(16, 8)
    query, key = torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)
    turned_query, turned_key = rotate(query.expand(1, 1, 16, 8), cos, sin), rotate(key.expand(1, 1, 16, 8), cos, sin)
    products = (turned_query @ turned_key.transpose(-1, -2))[0, 0]
    for distance in range(4):
        diagonal = products.diagonal(-distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(turned_query.norm(dim=-1), query.norm(dim=-1).expand(1, 1, 16))
