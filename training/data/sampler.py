"""Which tokens make up which sample: pure functions of the seed and the sample's number.

A run consumes samples 0, 1, 2, … in order, whatever the number of ranks; the count of samples consumed is the whole
cursor. Each epoch visits every window of `length` tokens once, in its own order, shifted by its own offset.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from training.errors import UserError


@lru_cache(maxsize=2)
def _epoch_starts(seed: int, epoch: int, num_tokens: int, length: int) -> np.ndarray:
    """First token of every window of one epoch, in the order of that epoch."""
    random = np.random.Generator(np.random.Philox(key=[seed, epoch]))
    count = windows_per_epoch(num_tokens, length)
    spare = num_tokens - 1 - count * length
    offset = int(random.integers(0, spare + 1))
    return random.permutation(count) * length + offset


def windows_per_epoch(num_tokens: int, length: int) -> int:
    """Windows of `length` inputs and as many targets (one token further). Raises UserError when there is none."""
    count = (num_tokens - 1) // length
    if count < 1:
        raise UserError(f"data: {num_tokens} tokens are fewer than one sequence of {length + 1}; give more text")
    return count


def sample_starts(first: int, count: int, *, seed: int, num_tokens: int, length: int) -> np.ndarray:
    """First token of samples first … first + count - 1, shape (count,)."""
    per_epoch = windows_per_epoch(num_tokens, length)
    starts = [
        _epoch_starts(seed, number // per_epoch, num_tokens, length)[number % per_epoch]
        for number in range(first, first + count)
    ]
    return np.array(starts, dtype=np.int64)


def validation_starts(count: int, *, num_tokens: int, length: int) -> np.ndarray:
    """At most `count` windows spread evenly over the validation tokens; the same at every evaluation."""
    available = windows_per_epoch(num_tokens, length)
    return np.linspace(0, available - 1, min(count, available)).astype(np.int64) * length


def gather(tokens: np.ndarray, starts: np.ndarray, length: int) -> np.ndarray:
    """Windows of length + 1 tokens: (B,) to (B, length + 1), int64."""
    return tokens[starts[:, None] + np.arange(length + 1)].astype(np.int64)
