"""How many parameters a shape has, by arithmetic: no torch, so that plans and dry runs can ask."""

from __future__ import annotations

from training.protocol.train_spec import ModelSpec

GATED_WIDTH_MULTIPLE = 128


def hidden_width(spec: ModelSpec) -> int:
    """The MLP's inner width: 4 D, or 8/3 D rounded up to a multiple of 128 when gated (11,008 at D = 4,096, as Llama)."""
    if spec.activation == "gelu":
        return 4 * spec.d_model
    return -(-8 * spec.d_model // (3 * GATED_WIDTH_MULTIPLE)) * GATED_WIDTH_MULTIPLE


def count_parameters(spec: ModelSpec) -> int:
    """All trainable numbers; tied embeddings count once."""
    width, hidden, is_biased = spec.d_model, hidden_width(spec), spec.norm == "layer_norm"
    up = hidden * (2 if spec.activation == "swiglu" else 1)
    norm = 2 * width if is_biased else width
    block = 4 * width * width + width * (up + hidden) + 2 * norm
    if is_biased:
        block += 4 * width + up + width
    embeddings = spec.vocab_size * width * (1 if spec.is_tied else 2)
    positions = spec.context_length * width if spec.positions == "learned" else 0
    return embeddings + positions + spec.num_layers * block + norm
