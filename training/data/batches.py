"""Batches of one rank: which samples of a step are its own, as tensors on its device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from training.data.sampler import gather, sample_starts, validation_starts
from training.world import World


class Batches:
    """Inputs and targets, each (B, T) int64, from packed ids."""

    def __init__(self, train: np.ndarray, validation: np.ndarray, *, length: int, seed: int, world: World) -> None:
        self._train, self._validation = train, validation
        self._length, self._seed, self._world = length, seed, world

    def micro_batches(self, first_sample: int, size: int, accumulation: int) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's part of the step that starts at `first_sample`: `accumulation` batches of `size`.

        Micro-batch a of rank r out of W holds samples first + (a·W + r)·size and on, so the step's samples are the same
        whatever way the global batch is shared.
        """
        for index in range(accumulation):
            first = first_sample + (index * self._world.size + self._world.rank) * size
            starts = sample_starts(first, size, seed=self._seed, num_tokens=len(self._train), length=self._length)
            yield self._to_tensors(self._train, starts)

    def validation_batches(self, size: int, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """This rank's share of at most `count` batches; together they are the same for any number of ranks."""
        starts = validation_starts(size * count, num_tokens=len(self._validation), length=self._length)
        batches = [starts[first : first + size] for first in range(0, len(starts), size)]
        for batch in batches[self._world.rank :: self._world.size]:
            yield self._to_tensors(self._validation, batch)

    def _to_tensors(self, ids: np.ndarray, starts: np.ndarray) -> tuple[Tensor, Tensor]:
        windows = torch.from_numpy(gather(ids, starts, self._length)).to(self._world.device, non_blocking=True)
        return windows[:, :-1], windows[:, 1:]
