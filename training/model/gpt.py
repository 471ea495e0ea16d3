# ruff: noqa: N803, N806, N815  (shape suffixes)
"""A decoder-only transformer.

Choices: pre-norm; SDPA attention; normal(0.02) weights with the residual projections scaled by 1/sqrt(2 L); logits and
loss in float32; tied embeddings share one parameter.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.model.layers import Block, build_norm, rotary_tables
from training.protocol.train_spec import ModelSpec

INIT_STD = 0.02


class Gpt(nn.Module):
    """Token ids (B, T) to logits (B, T, V)."""

    cos_TK: Tensor
    sin_TK: Tensor

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.tokens = nn.Embedding(spec.vocab_size, spec.d_model)
        is_learned = spec.positions == "learned"
        self.positions = nn.Embedding(spec.context_length, spec.d_model) if is_learned else None
        self.dropout = nn.Dropout(spec.dropout)
        self.blocks = nn.ModuleList(Block(spec) for _ in range(spec.num_layers))
        self.norm = build_norm(spec)
        self.head = None if spec.is_tied else nn.Linear(spec.d_model, spec.vocab_size, bias=False)
        cos, sin = rotary_tables(spec.context_length, spec.d_model // spec.num_heads)
        self.register_buffer("cos_TK", cos, persistent=False)
        self.register_buffer("sin_TK", sin, persistent=False)
        self.init_weights()

    @torch.no_grad()
    def init_weights(self) -> None:
        """Draw all weights from torch's global generator."""
        residual_std = INIT_STD / math.sqrt(2 * self.spec.num_layers)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                module.weight.normal_(0.0, residual_std if name.endswith(".out") else INIT_STD)
                if module.bias is not None:
                    module.bias.zero_()
            elif isinstance(module, nn.Embedding):
                module.weight.normal_(0.0, INIT_STD)

    def forward(self, ids_BT: Tensor) -> Tensor:
        x_BTD = self.tokens(ids_BT)
        if self.positions is not None:
            x_BTD = x_BTD + self.positions(torch.arange(ids_BT.shape[1], device=ids_BT.device))
        x_BTD = self.dropout(x_BTD)
        for block in self.blocks:
            x_BTD = block(x_BTD, self.cos_TK, self.sin_TK)
        weight_VD = self.tokens.weight if self.head is None else self.head.weight
        return functional.linear(self.norm(x_BTD), weight_VD)

    def loss(self, ids_BT: Tensor, targets_BT: Tensor) -> Tensor:
        """Mean cross-entropy in nats a token, a float32 scalar."""
        logits_BTV = self(ids_BT)
        return functional.cross_entropy(logits_BTV.float().flatten(0, 1), targets_BT.flatten())
