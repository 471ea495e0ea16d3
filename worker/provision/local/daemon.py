"""The daemon's edges: its folder's lock, its socket, its token, its clock and its market loop."""

from __future__ import annotations

import fcntl
import logging
import secrets
import signal
import socket
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from os import getpid
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn

import uvicorn

from worker.provision.local.api import make_app
from worker.provision.local.boot import NODE_COMMAND
from worker.provision.local.cloud import Cloud
from worker.provision.local.market import make_market
from worker.provision.local.profile import Profile
from worker.provision.local.records import write_atomically
from worker.provision.local.wire import ENDPOINT_FILE, Endpoint

SWEEP_SECONDS = 0.25
_log = logging.getLogger(__name__)


class FolderInUse(Exception):
    """Another daemon serves this folder."""


def utc_now() -> datetime:
    return datetime.now(UTC)


def serve(folder: Path, profile: Profile, seed: int, node_command: Sequence[str] = NODE_COMMAND) -> None:
    """Serve until SIGTERM or SIGINT, then exit with 0; nodes go on without the daemon.

    Errors: FolderInUse, ValueError, OSError.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)  # uvicorn raises the signal again once it has shut down
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = folder.resolve()
    with (folder / "daemon.lock").open("a") as lock:
        _lock_folder(lock)
        former = read_endpoint(folder)
        listener = _bind(former)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        token = former.token if former else secrets.token_urlsafe(32)
        cloud = Cloud(folder, make_market(profile, seed), utc_now(), url=url, node_command=node_command)
        endpoint = Endpoint(url=url, token=token, pid=getpid(), started_at=utc_now())
        write_atomically(folder / ENDPOINT_FILE, endpoint.model_dump_json())
        _run(cloud, token, listener)


def read_endpoint(folder: Path) -> Endpoint | None:
    """The daemon that serves, or last served, this folder. Errors: ValueError for a damaged file, OSError."""
    path = folder / ENDPOINT_FILE
    return Endpoint.model_validate_json(path.read_bytes()) if path.exists() else None


def _exit(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def _lock_folder(lock: IO[str]) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise FolderInUse("another local cloud serves this folder") from error


def _bind(former: Endpoint | None) -> socket.socket:
    """The former port, for the nodes that poll it still; another when it is taken."""
    port = int(former.url.rpartition(":")[2]) if former else 0
    try:
        return socket.create_server(("127.0.0.1", port), backlog=512)
    except OSError:
        return socket.create_server(("127.0.0.1", 0), backlog=512)


def _run(cloud: Cloud, token: str, listener: socket.socket) -> None:
    wake, stop = threading.Event(), threading.Event()
    app = make_app(cloud, token, utc_now, on_launch=wake.set)
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=2)
    loop = threading.Thread(target=_sweep_until, args=(cloud, wake, stop), name="market", daemon=True)
    loop.start()
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        stop.set()
        wake.set()
        loop.join()


def _sweep_until(cloud: Cloud, wake: threading.Event, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            cloud.sweep(utc_now())
        except Exception:  # the market outlives a full disk; the next sweep tries again
            _log.exception("the sweep failed")
        wake.wait(SWEEP_SECONDS)
        wake.clear()
