"""AdamW over flat buffers.

All weights live in one flat float32 buffer, decayed ones (matrices) first; the gradients in another of the same layout.
So the sum over ranks, the norm, the clip and the update are one operation each. The update is torch's own fused kernel,
called directly: the class torch.optim.AdamW imports torch._dynamo at its first step, which costs seconds at every launch.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from training.protocol.train_spec import AdamWSpec

ALIGNMENT = 16
"""Each weight starts at a multiple of 64 bytes, so that kernels take the same path as with torch's own allocation."""


class FlatParameters:
    """A module's parameters and gradients as views of two flat buffers, `values` and `gradients`, shape (n,)."""

    def __init__(self, module: nn.Module) -> None:
        parameters = dict(module.named_parameters())
        decayed = [name for name, parameter in parameters.items() if parameter.ndim >= 2]
        self._shapes: dict[str, torch.Size] = {}
        self._offsets: dict[str, int] = {}
        self.num_decayed = 0
        size = 0
        for name in [*decayed, *(name for name in parameters if name not in decayed)]:
            self._shapes[name], self._offsets[name] = parameters[name].shape, size
            size += -(-parameters[name].numel() // ALIGNMENT) * ALIGNMENT
            self.num_decayed = size if name in decayed else self.num_decayed
        device = next(iter(parameters.values())).device
        self.values = torch.zeros(size, dtype=torch.float32, device=device)
        self.gradients = torch.zeros_like(self.values)
        for (name, value), (_, gradient) in zip(self.views(self.values), self.views(self.gradients), strict=True):
            value.copy_(parameters[name].detach())
            parameters[name].data, parameters[name].grad = value, gradient

    def views(self, flat: Tensor) -> Iterator[tuple[str, Tensor]]:
        """Each weight's part of a buffer of this layout, by name."""
        for name, shape in self._shapes.items():
            yield name, flat[self._offsets[name] : self._offsets[name] + shape.numel()].view(shape)

    def name_parts(self, flat: Tensor) -> dict[str, Tensor]:
        return dict(self.views(flat))

    @torch.no_grad()
    def load(self, flat: Tensor, parts: dict[str, Tensor]) -> None:
        """Copy named parts into a buffer. Raises KeyError or ValueError when names or shapes differ."""
        if extra := parts.keys() - self._shapes.keys():
            raise KeyError(f"unknown weights {sorted(extra)[:3]}")
        for name, view in self.views(flat):
            if parts[name].shape != view.shape:
                raise ValueError(f"{name} has shape {tuple(parts[name].shape)}, not {tuple(view.shape)}")
            view.copy_(parts[name])


class AdamW:
    """Decoupled weight decay on matrices alone. Moments are flat, of the parameters' layout."""

    def __init__(self, flat: FlatParameters, spec: AdamWSpec) -> None:
        self._flat, self._spec = flat, spec
        self.mean = torch.zeros_like(flat.values)
        self.mean_square = torch.zeros_like(flat.values)
        self.updates = torch.zeros((), dtype=torch.float32, device=flat.values.device)

    @torch.no_grad()
    def update(self, learning_rate: float) -> None:
        """One step along the present gradients."""
        cut, size = self._flat.num_decayed, self._flat.values.numel()
        self.updates += 1  # the kernel takes the count of this update, not of those before
        for start, end, decay in ((0, cut, self._spec.weight_decay), (cut, size, 0.0)):
            if start == end:
                continue
            buffers = (self._flat.values, self._flat.gradients, self.mean, self.mean_square)
            value, gradient, mean, mean_square = (buffer[start:end] for buffer in buffers)
            torch._fused_adamw_(  # pyright: ignore[reportPrivateImportUsage]
                [value],
                [gradient],
                [mean],
                [mean_square],
                [],
                [self.updates],
                lr=learning_rate,
                beta1=self._spec.betas[0],
                beta2=self._spec.betas[1],
                weight_decay=decay,
                eps=self._spec.epsilon,
                amsgrad=False,
                maximize=False,
            )


@torch.no_grad()
def clip_gradients(gradients: Tensor, max_norm: float | None) -> Tensor:
    """Scale gradients down to `max_norm`, in place; the norm before, a scalar."""
    norm = torch.linalg.vector_norm(gradients)
    if max_norm is not None:
        gradients.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm
