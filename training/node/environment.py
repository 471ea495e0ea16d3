"""The environment of ranks and set-up: the agent's own, less its token, plus the job's and the contract's variables."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from training.node.layout import Layout
from training.protocol import rank_contract as contract
from training.protocol.launch_spec import SECRET_NAMES_ENV, TOKEN_ENV, LaunchSpec

DEFAULT_CHECKPOINT_SECONDS = 900.0
_AGENT_ALONE = frozenset({TOKEN_ENV, SECRET_NAMES_ENV, "PYTHONSAFEPATH"})


def take_token(environ: MutableMapping[str, str]) -> str:
    """The node's token, removed from the environment. Errors: KeyError when there is none."""
    if not environ.get(TOKEN_ENV):
        raise KeyError(TOKEN_ENV)
    _wipe_initial_value(TOKEN_ENV)
    return environ.pop(TOKEN_ENV)


def _wipe_initial_value(name: str) -> None:
    """Overwrite the value in the process's initial environment, which ranks could read in /proc after its removal."""
    if not sys.platform.startswith("linux"):
        return
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_void_p
    address = getenv(name.encode())
    if address:
        ctypes.memset(address, ord("x"), len(os.environb.get(name.encode(), b"")))


def secret_values(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values of the job's secrets."""
    names = environ.get(SECRET_NAMES_ENV, "").split(",")
    return tuple(environ[name] for name in names if name and environ.get(name))


def base_environment(environ: Mapping[str, str], spec: LaunchSpec, layout: Layout) -> dict[str, str]:
    """What set-up and every rank share. `python` is the agent's own interpreter unless the job says otherwise."""
    inherited = {name: value for name, value in environ.items() if name not in _AGENT_ALONE}
    interpreter = str(Path(sys.executable).parent)
    policy = spec.checkpoint
    every = policy.every.total_seconds() if policy.every is not None else None
    if every is None and policy.every_steps is None:
        every = DEFAULT_CHECKPOINT_SECONDS
    cadence = {
        contract.CHECKPOINT_EVERY_STEPS: None if policy.every_steps is None else str(policy.every_steps),
        contract.CHECKPOINT_EVERY_SECONDS: None if every is None else f"{every:g}",
    }
    return {
        **inherited,
        "PATH": f"{interpreter}{os.pathsep}{inherited.get('PATH', os.defpath)}",
        "PYTHONUNBUFFERED": "1",
        **spec.env,
        contract.JOB_ID: spec.job_id,
        contract.ATTEMPT_ID: spec.attempt_id,
        contract.FENCE: str(spec.fence),
        contract.NODE_RANK: str(spec.node_rank),
        contract.NUM_NODES: str(spec.num_nodes),
        contract.CHECKPOINT_DIR: str(layout.checkpoints),
        contract.METRICS_FILE: str(layout.metrics_file),
        contract.OUTPUT_DIR: str(layout.outputs),
        contract.CACHE_DIR: str(layout.cache),
        **{name: value for name, value in cadence.items() if value is not None},
    }


def rank_environment(
    base: Mapping[str, str], spec: LaunchSpec, layout: Layout, rank: int, resume: Path | None
) -> dict[str, str]:
    """One rank's environment. `rank` is global; the names besides ours are those of torch's `env://` rendezvous."""
    address, _, port = spec.rendezvous.rpartition(":")
    optional = {
        contract.RESUME_DIR: None if resume is None else str(resume),
        contract.TRAIN_SPEC_FILE: None if spec.train is None else str(layout.train_spec_file),
    }
    return {
        **base,
        **{name: value for name, value in optional.items() if value is not None},
        "RANK": str(rank),
        "LOCAL_RANK": str(rank - spec.node_rank * spec.ranks_per_node),
        "WORLD_SIZE": str(spec.num_nodes * spec.ranks_per_node),
        "LOCAL_WORLD_SIZE": str(spec.ranks_per_node),
        "NODE_RANK": str(spec.node_rank),
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
    }
