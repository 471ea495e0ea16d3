"""The random state of one rank as bytes: torch, CUDA, Python and NumPy, of one size for one kind of device."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import Tensor

PYTHON_WORDS = 625


def seed_rank(seed: int, rank: int, step: int) -> None:
    """Start every generator afresh, differently on each rank."""
    words = np.random.SeedSequence([seed, rank, step]).generate_state(2, np.uint64)
    torch.manual_seed(int(words[0]) >> 1)
    random.seed(int(words[1]))
    np.random.seed(int(words[1]) & 0xFFFF_FFFF)


def capture_rng(device: torch.device) -> Tensor:
    """Shape (n,), uint8, on the CPU."""
    _, words, spare = random.getstate()
    _, keys, position, has_spare, numpy_spare = np.random.get_state()
    parts = [
        torch.get_rng_state(),
        torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.empty(0, dtype=torch.uint8),
        _to_bytes(np.array(words, dtype=np.int64)),
        _to_bytes(np.array([spare is not None, spare or 0.0])),
        _to_bytes(np.asarray(keys, dtype=np.int64)),
        _to_bytes(np.array([position, has_spare, numpy_spare], dtype=np.float64)),
    ]
    return torch.cat(parts)


def restore_rng(state: Tensor, device: torch.device) -> None:
    """Undo `capture_rng`. Raises ValueError when the state is of another kind of device."""
    cuda_size = torch.cuda.get_rng_state(device).numel() if device.type == "cuda" else 0
    sizes = [torch.get_rng_state().numel(), cuda_size, PYTHON_WORDS * 8, 2 * 8, 624 * 8, 3 * 8]
    if state.numel() != sum(sizes):
        raise ValueError(f"random state of {state.numel()} bytes, expected {sum(sizes)}")
    torch_state, cuda_state, words, spare, keys, position = state.split(sizes)
    torch.set_rng_state(torch_state.clone())
    if cuda_size:
        torch.cuda.set_rng_state(cuda_state.clone(), device)
    has_spare, spare_value = _from_bytes(spare, np.float64)
    random.setstate((3, tuple(map(int, _from_bytes(words, np.int64))), float(spare_value) if has_spare else None))
    place, numpy_has_spare, numpy_spare = _from_bytes(position, np.float64)
    key_words = _from_bytes(keys, np.int64).astype(np.uint32)
    np.random.set_state(("MT19937", key_words, int(place), int(numpy_has_spare), float(numpy_spare)))


def _to_bytes(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.frombuffer(values.tobytes(), dtype=np.uint8).copy())


def _from_bytes(state: Tensor, dtype: type) -> np.ndarray:
    return np.frombuffer(state.numpy().tobytes(), dtype=dtype)
