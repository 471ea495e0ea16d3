"""The train spec: what the bundled runtime trains, on what, and for how long."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from training.protocol.base import Text, Value

Probability = Annotated[float, Field(ge=0, le=1)]
Path = Annotated[Text, Field(min_length=1, max_length=1024)]


class Precision(StrEnum):
    BF16 = "bf16"
    FP32 = "fp32"


class ModelSpec(Value):
    """A decoder-only transformer's shape. Sizes that a recipe sets may be overridden one by one."""

    d_model: int = Field(ge=8, le=65_536, description="width")
    num_layers: int = Field(ge=1, le=1024, description="depth")
    num_heads: int = Field(ge=1, le=1024, description="attention heads; must divide the width")
    context_length: int = Field(ge=8, le=1_048_576, description="tokens a sequence")
    vocab_size: int = Field(ge=257, le=1_000_000, description="tokens that the tokeniser knows")
    positions: Literal["learned", "rotary"] = Field(default="rotary", description="how places are told")
    norm: Literal["layer_norm", "rms_norm"] = Field(
        default="rms_norm", description="layer_norm goes with biases, as in GPT-2; rms_norm without, as in Llama"
    )
    activation: Literal["gelu", "swiglu"] = Field(default="gelu", description="of the feed-forward layers")
    dropout: Probability = Field(default=0.0, description="share of activations dropped in training")
    is_tied: bool = Field(default=True, description="input and output embeddings share their weights")

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.d_model % self.num_heads:
            raise ValueError(f"num_heads={self.num_heads} must divide d_model={self.d_model}")
        if self.positions == "rotary" and (self.d_model // self.num_heads) % 2:
            raise ValueError("rotary positions need an even head size (d_model / num_heads)")
        return self


class DataSpec(Value):
    """Where the tokens come from.

    `source` is a folder or file of text on the node, or `stdlib` for the sources of the node's own Python. Text is
    tokenised once into packed binary shards, kept in `cache`.
    """

    source: Path = Field(default="stdlib", description="a folder or file of text on the node, or `stdlib`")
    include: tuple[Text, ...] = Field(
        default=("*.py",), max_length=64, description="which files of a folder, by pattern"
    )
    max_bytes: int | None = Field(default=None, ge=1024, description="read no more than this much text")
    validation_share: float = Field(
        default=0.05, gt=0, lt=0.5, description="share of the documents kept for validation"
    )
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="which documents are kept for validation")


class AdamWSpec(Value):
    """AdamW. Decay applies to matrices alone."""

    name: Literal["adamw"] = Field(default="adamw", description="the optimizer")
    learning_rate: float = Field(gt=0, le=10, description="at its height, after the warm-up")
    betas: tuple[Probability, Probability] = Field(default=(0.9, 0.95), description="decay of the two moments")
    epsilon: float = Field(default=1e-8, gt=0, le=1, description="keeps the division finite")
    weight_decay: float = Field(default=0.1, ge=0, le=10, description="pull towards zero")


class ScheduleSpec(Value):
    """Learning rate as a pure function of the step: linear warm-up, then cosine down to `min_lr_ratio`."""

    name: Literal["cosine", "constant"] = Field(default="cosine", description="the shape after the warm-up")
    warmup_steps: int = Field(default=0, ge=0, le=10_000_000, description="steps of linear rise")
    min_lr_ratio: Probability = Field(default=0.1, description="the last learning rate, as a share of the highest")


class TrainSpec(Value):
    """One run of the bundled runtime. The horizon is `steps`; batch x accumulation x world x context tokens each."""

    recipe: Annotated[Text, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")] = Field(
        description="a model, optimizer and schedule by name"
    )
    model: dict[str, int | float | bool | str] = Field(
        default_factory=dict, max_length=32, description="fields of the recipe's model to override"
    )
    data: DataSpec = Field(default=DataSpec(), description="where the tokens come from")
    optimizer: AdamWSpec | None = Field(default=None, description="none takes the recipe's")
    schedule: ScheduleSpec | None = Field(default=None, description="none takes the recipe's")
    steps: int = Field(ge=1, le=100_000_000, description="the horizon: optimizer steps in all")
    micro_batch_size: int = Field(default=8, ge=1, le=65_536, description="sequences a rank and a forward pass")
    accumulation: int = Field(default=1, ge=1, le=65_536, description="micro-batches a rank and a step")
    clip_norm: float | None = Field(default=1.0, gt=0, description="the gradient's largest norm; null: any")
    precision: Precision = Field(default=Precision.FP32, description="of the arithmetic; weights stay fp32")
    plan: Literal["auto", "single", "ddp"] = Field(default="auto", description="how the ranks share the work")
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="of weights, order and dropout")
    log_interval: int = Field(default=1, ge=1, le=1_000_000, description="steps between metrics")
    eval_interval: int = Field(default=100, ge=1, le=10_000_000, description="steps between validations")
    eval_batches: int = Field(default=8, ge=1, le=100_000, description="micro-batches a validation")
    sample_prompt: Annotated[Text, Field(max_length=4096)] | None = Field(
        default=None, description="text to continue at the end; the sample is an output"
    )
    sample_tokens: int = Field(default=128, ge=1, le=4096, description="how long the sample is")
