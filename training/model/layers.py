# ruff: noqa: N803, N806  (shape suffixes)
"""The layers of a decoder-only transformer.

Shape suffixes: B batch, T positions, D model width, H heads, K head size, F hidden width of the MLP.
Biases go with LayerNorm (GPT-2 style) and not with RMSNorm (Llama style).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.model.count import hidden_width
from training.protocol.train_spec import ModelSpec

ROTARY_BASE = 10_000.0


def has_biases(spec: ModelSpec) -> bool:
    return spec.norm == "layer_norm"


def build_norm(spec: ModelSpec) -> nn.Module:
    return nn.LayerNorm(spec.d_model) if spec.norm == "layer_norm" else nn.RMSNorm(spec.d_model, eps=1e-6)


def rotary_tables(context_length: int, head_size: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines, each (T, K/2), in float32."""
    frequencies = ROTARY_BASE ** (-torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
    angles_TK = torch.outer(torch.arange(context_length, dtype=torch.float32), frequencies)
    return angles_TK.cos(), angles_TK.sin()


def rotate(x_BHTK: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
    """Turn each pair (i, i + K/2) by its position's angle; lengths are kept."""
    left, right = x_BHTK.chunk(2, dim=-1)
    cos, sin = cos_TK.to(x_BHTK.dtype), sin_TK.to(x_BHTK.dtype)
    return torch.cat((left * cos - right * sin, left * sin + right * cos), dim=-1)


class Attention(nn.Module):
    """Causal self-attention over (B, T, D)."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.num_heads = spec.num_heads
        self.dropout = spec.dropout
        self.is_rotary = spec.positions == "rotary"
        self.qkv = nn.Linear(spec.d_model, 3 * spec.d_model, bias=has_biases(spec))
        self.out = nn.Linear(spec.d_model, spec.d_model, bias=has_biases(spec))

    def forward(self, x_BTD: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
        B, T, D = x_BTD.shape
        qkv = self.qkv(x_BTD).view(B, T, 3, self.num_heads, D // self.num_heads)
        q_BHTK, k_BHTK, v_BHTK = qkv.permute(2, 0, 3, 1, 4)
        if self.is_rotary:
            q_BHTK, k_BHTK = rotate(q_BHTK, cos_TK[:T], sin_TK[:T]), rotate(k_BHTK, cos_TK[:T], sin_TK[:T])
        dropout = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(q_BHTK, k_BHTK, v_BHTK, dropout_p=dropout, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(B, T, D))


class Mlp(nn.Module):
    """GELU with four times the width, or SwiGLU with 8/3 of it in three matrices."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        width = hidden_width(spec)
        self.is_gated = spec.activation == "swiglu"
        self.up = nn.Linear(spec.d_model, 2 * width if self.is_gated else width, bias=has_biases(spec))
        self.out = nn.Linear(width, spec.d_model, bias=has_biases(spec))

    def forward(self, x_BTD: Tensor) -> Tensor:
        up_BTF = self.up(x_BTD)
        if not self.is_gated:
            return self.out(functional.gelu(up_BTF, approximate="tanh"))
        gate_BTF, value_BTF = up_BTF.chunk(2, dim=-1)
        return self.out(functional.silu(gate_BTF) * value_BTF)


class Block(nn.Module):
    """Pre-norm residual block: attention, then MLP."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.attention_norm, self.attention = build_norm(spec), Attention(spec)
        self.mlp_norm, self.mlp = build_norm(spec), Mlp(spec)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, x_BTD: Tensor, cos_TK: Tensor, sin_TK: Tensor) -> Tensor:
        x_BTD = x_BTD + self.dropout(self.attention(self.attention_norm(x_BTD), cos_TK, sin_TK))
        return x_BTD + self.dropout(self.mlp(self.mlp_norm(x_BTD)))
