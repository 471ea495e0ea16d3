"""From a launch request to running agents: folders, launch specs, environments, processes."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import training
from training.protocol.launch_spec import METADATA_URL_ENV, LaunchSpec
from training.protocol.rank_contract import CACHE_DIR
from worker.provision.local.records import write_atomically

NODE_COMMAND = (sys.executable, "-P", "-m", "training.node")
"""What a node runs; `--spec FILE` follows. -P keeps a user's folder from shadowing our packages."""

SPEC_NAME = "launch_spec.json"
AZURE_METADATA_ENV = "GODWIT_AZURE_METADATA_ENDPOINT"
GCE_METADATA_ENV = "GCE_METADATA_HOST"
"""Google's libraries' own variable: an address without its scheme."""
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")


@dataclass(frozen=True, kw_only=True)
class BootPlan:
    """What a pending cluster will be started with. In memory only: it holds the job's secrets."""

    specs: Sequence[LaunchSpec]
    environment: Mapping[str, str] = field(repr=False)


def plan_boot(specs: Sequence[LaunchSpec], environment: Mapping[str, str]) -> BootPlan:
    """Every node here is this machine: the gang meets at a free port of loopback. Errors: OSError when there is none."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        rendezvous = f"127.0.0.1:{listener.getsockname()[1]}"
    met = [spec.model_copy(update={"rendezvous": rendezvous}) for spec in specs]
    return BootPlan(specs=met, environment=environment)


def write_spec(folder: Path, spec: LaunchSpec) -> Path:
    """The node's folder with its launch spec in it. Errors: OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / SPEC_NAME
    write_atomically(path, spec.model_dump_json())
    return path


def make_environment(given: Mapping[str, str], metadata_url: str, cache: Path) -> dict[str, str]:
    """A node's whole environment: little of the daemon's, what the request gives, and the machine's own last.

    All three clouds' variables lead here, so that no node asks the metadata service of the machine below it.
    """
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    machine = {
        METADATA_URL_ENV: metadata_url,
        AZURE_METADATA_ENV: metadata_url,
        GCE_METADATA_ENV: metadata_url.removeprefix("http://"),
        CACHE_DIR: str(cache),
    }
    return {**inherited, **_source_path(), **given, **machine}


def _source_path() -> dict[str, str]:
    """Where our packages are, when they run from a source folder and not from an installation."""
    root = Path(training.__file__).resolve().parent.parent
    return {} if root.name in ("site-packages", "dist-packages") else {"PYTHONPATH": str(root)}
