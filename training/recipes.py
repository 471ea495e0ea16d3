"""Recipes: Python functions that return a shape and the settings it trains well with. The registry is a plain dict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field, ValidationError

from training.errors import UserError
from training.protocol.base import Value
from training.protocol.train_spec import AdamWSpec, ModelSpec, ScheduleSpec, TrainSpec


class Recipe(Value):
    """What a train spec starts from; each part may be overridden there."""

    description: str = Field(min_length=1)
    model: ModelSpec
    optimizer: AdamWSpec
    schedule: ScheduleSpec


def nano_gpt() -> Recipe:
    return Recipe(
        description="a GPT for two CPU cores and two minutes, on the Python standard library",
        model=ModelSpec(d_model=128, num_layers=4, num_heads=4, context_length=128, vocab_size=2048),
        optimizer=AdamWSpec(learning_rate=5e-3, betas=(0.9, 0.98)),
        schedule=ScheduleSpec(warmup_steps=40, min_lr_ratio=0.02),
    )


def gpt_1b() -> Recipe:
    return _gpt2(d_model=1536, num_layers=24, num_heads=24, vocab_size=50_000, is_tied=True, learning_rate=3e-4)


def tiny() -> Recipe:
    return _gpt2(d_model=768, num_layers=12, num_heads=12, learning_rate=6e-4)


def medium() -> Recipe:
    return _gpt2(d_model=1024, num_layers=24, num_heads=16, learning_rate=3e-4)


def large() -> Recipe:
    return _gpt2(d_model=1600, num_layers=32, num_heads=25, learning_rate=2.5e-4)


def xlarge() -> Recipe:
    return _gpt2(d_model=1792, num_layers=36, num_heads=28, learning_rate=2e-4)


def _gpt2(
    *,
    d_model: int,
    num_layers: int,
    num_heads: int,
    learning_rate: float,
    vocab_size: int = 32_768,
    is_tied: bool = False,
) -> Recipe:
    """GPT-2 style: learned positions, LayerNorm with biases, GELU, 2,048 positions."""
    return Recipe(
        description=f"GPT-2 style, {num_layers} x {d_model}, 2,048 positions, vocabulary {vocab_size:,}",
        model=ModelSpec(
            d_model=d_model,
            num_layers=num_layers,
            num_heads=num_heads,
            context_length=2048,
            vocab_size=vocab_size,
            positions="learned",
            norm="layer_norm",
            activation="gelu",
            is_tied=is_tied,
        ),
        optimizer=AdamWSpec(learning_rate=learning_rate),
        schedule=ScheduleSpec(warmup_steps=2000),
    )


RECIPES: dict[str, Callable[[], Recipe]] = {
    "nano_gpt": nano_gpt,
    "gpt_1b": gpt_1b,
    "tiny": tiny,
    "medium": medium,
    "large": large,
    "xlarge": xlarge,
}


def resolve_recipe(spec: TrainSpec) -> Recipe:
    """The named recipe with the spec's own settings over it. Raises UserError that names the field."""
    if spec.recipe not in RECIPES:
        raise UserError(f"recipe: there is no {spec.recipe!r}; choose one of {', '.join(RECIPES)}")
    recipe = RECIPES[spec.recipe]()
    return Recipe(
        description=recipe.description,
        model=override_model(recipe.model, spec.model),
        optimizer=spec.optimizer or recipe.optimizer,
        schedule=spec.schedule or recipe.schedule,
    )


def override_model(model: ModelSpec, changes: dict[str, Any]) -> ModelSpec:
    """The shape with some fields changed. Raises UserError that names the field."""
    try:
        return ModelSpec.model_validate({**model.model_dump(), **changes})
    except ValidationError as error:
        raise UserError(describe_validation_error(error, "model")) from error


def describe_validation_error(error: ValidationError, prefix: str = "") -> str:
    """Every fault on one line, by field; values are left out."""
    faults = []
    for fault in error.errors(include_url=False, include_input=False):
        field = ".".join(str(part) for part in (*((prefix,) if prefix else ()), *fault["loc"]))
        faults.append(f"{field}: {fault['msg']}" if field else fault["msg"])
    return "; ".join(faults[:8])
