"""The ranks of a run and what they say to one another: sums, and nothing else.

Gradients are summed over one flat buffer after the last backward pass. Compared with DistributedDataParallel this gives
up the overlap with the backward pass, and gains a sum whose order never depends on the run's history (DDP regroups its
buckets after the first step, so a resumed run of more than two ranks would round differently) and a start without
torch._dynamo, which that class imports.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import Tensor

from training.errors import InfrastructureError, UserError
from training.rank_env import RankEnv

PEER_TIMEOUT = timedelta(minutes=15)
"""Longer than rank 0's last save, for which the others wait. A dead peer is noticed at once, by its closed connection."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True, kw_only=True)
class World:
    """This rank among `size`, and its device."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Add up over all ranks, in place. Raises InfrastructureError when a rank is lost."""
        if self.size > 1:
            try:
                torch.distributed.all_reduce(values)
            except RuntimeError as error:
                raise InfrastructureError(f"rank {self.rank} lost a peer: {_first_line(error)}") from error
        return values

    def gather(self, values: Tensor) -> Tensor:
        """Every rank's equally shaped values, shape (size, …), on every rank."""
        rows = torch.zeros(self.size, *values.shape, dtype=values.dtype, device=self.device)
        rows[self.rank] = values
        return self.sum(rows)

    def leave(self) -> None:
        """Part from the others in good order; every rank must come here."""
        if self.size > 1:
            self.sum(torch.zeros(1, device=self.device))
            torch.distributed.destroy_process_group()


def join_world(env: RankEnv) -> World:
    """Meet the other ranks at MASTER_ADDR:MASTER_PORT. Raises InfrastructureError when they do not come."""
    device = choose_device(env)
    if env.world_size > 1:
        if device.type == "cpu" and os.environ.get("MASTER_ADDR") in LOOPBACK:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
        try:
            torch.distributed.init_process_group(
                "nccl" if device.type == "cuda" else "gloo",
                rank=env.rank,
                world_size=env.world_size,
                timeout=PEER_TIMEOUT,
            )
        except (RuntimeError, ValueError) as error:
            raise InfrastructureError(f"rank {env.rank} could not join the others: {_first_line(error)}") from error
    return World(rank=env.rank, size=env.world_size, device=device)


def choose_device(env: RankEnv) -> torch.device:
    """A GPU a rank where there is any. Raises UserError when a node has fewer GPUs than ranks."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    if env.local_rank >= torch.cuda.device_count():
        raise UserError(
            f"resources.ranks_per_node: {env.ranks_per_node} ranks, but this node has {torch.cuda.device_count()} GPUs"
        )
    torch.cuda.set_device(env.local_rank)
    return torch.device("cuda", env.local_rank)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:300]
