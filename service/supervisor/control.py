"""Starting, finding and stopping the embedded service from outside it."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from service.supervisor.children import STOP_ORDER
from service.supervisor.cloud import CloudAway, LiveCluster, list_live_clusters
from service.supervisor.environment import child_environment
from service.supervisor.layout import Layout
from service.supervisor.logs import open_log, tail
from service.supervisor.processes import is_alive, stop_group, wait_gone
from service.supervisor.state import Phase, State, read_state, remove_state, try_lock
from service.supervisor.supervise import READY_SECONDS, StartFailed

_POLL_SECONDS = 0.1
_START_SECONDS = READY_SECONDS + 60
_STOP_SECONDS = 60.0
_FIRST_STATE_SECONDS = 20.0


class PortInUse(Exception):
    """Another program listens there."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"cannot listen on {host}:{port}: {reason}")
        self.port = port


@dataclass(frozen=True, kw_only=True, slots=True)
class StartOptions:
    """`parent` is a process whose end stops everything; `foreground` runs the supervisor until it is told to stop."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 8717
    market_profile: str = "default"
    market_seed: int = 0
    parent: int | None = None
    foreground: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    url: str
    is_new: bool
    data_dir: Path


def start(options: StartOptions, base_environment: Mapping[str, str]) -> Running:
    """The service, ready; started unless it runs already. Errors: PortInUse, StartFailed."""
    layout = Layout(options.data_dir.resolve())
    layout.create()
    lock = try_lock(layout.lock_file)
    if lock is None:
        return Running(url=_wait_ready(layout).url, is_new=False, data_dir=layout.data_dir)
    try:
        clean_up(layout)
        with _listen(options.host, options.port) as listener:
            url = _url_of(options.host, listener.getsockname()[1])
            _spawn(layout, options, base_environment, url, listener.fileno(), lock)
    finally:
        os.close(lock)
    if options.foreground:
        return Running(url=url, is_new=True, data_dir=layout.data_dir)
    return Running(url=_wait_ready(layout).url, is_new=True, data_dir=layout.data_dir)


def find(data_dir: Path) -> State | None:
    """The running service's state, or None. A state file alone proves nothing: the lock does."""
    layout = Layout(data_dir.resolve())
    return read_state(layout) if is_running(layout) else None


def is_running(layout: Layout) -> bool:
    if not layout.lock_file.exists():
        return False
    lock = try_lock(layout.lock_file)
    if lock is not None:
        os.close(lock)
    return lock is None


def live_clusters(data_dir: Path) -> list[LiveCluster]:
    """What `stop` would leave running. Errors: CloudAway."""
    return list_live_clusters(Layout(data_dir.resolve()).cloud_dir)


def stop(data_dir: Path, *, stops_nodes: bool) -> bool:
    """Stop everything of the service; False when nothing ran. What a killed supervisor left behind is stopped too."""
    layout = Layout(data_dir.resolve())
    was_running = is_running(layout)
    state = _await_state(layout) if was_running else None
    if state is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(state.supervisor.pid, signal.SIGUSR2 if stops_nodes else signal.SIGTERM)
        if not wait_gone(state.supervisor, _STOP_SECONDS):
            stop_group(state.supervisor, grace_seconds=0)
    return clean_up(layout) or was_running


def _await_state(layout: Layout) -> State | None:
    """A supervisor that has only just started has not written its state yet."""
    deadline = time.monotonic() + _FIRST_STATE_SECONDS
    while (state := read_state(layout)) is None and time.monotonic() < deadline and is_running(layout):
        time.sleep(_POLL_SECONDS)
    return state


def clean_up(layout: Layout) -> bool:
    """Stop the children of a supervisor that was killed; whether there were any. Nodes are not its children."""
    state = read_state(layout)
    if state is None:
        return False
    names = [*(name for name in STOP_ORDER if name in state.children)]
    left = [state.children[name].identity for name in names if is_alive(state.children[name].identity)]
    for identity in left:
        stop_group(identity, grace_seconds=3)
    remove_state(layout)
    return bool(left)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        reason = "the port is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise PortInUse(host, port, reason) from error
    return listener


def _url_of(host: str, port: int) -> str:
    """Where this machine reaches it."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{reachable}:{port}"


def _spawn(
    layout: Layout, options: StartOptions, base: Mapping[str, str], url: str, socket_fd: int, lock_fd: int
) -> None:
    """In the foreground this returns only when the supervisor has ended."""
    argv = [
        *(sys.executable, "-P", "-m", "service.supervisor", "--data-dir", str(layout.data_dir), "--url", url),
        *("--socket-fd", str(socket_fd), "--lock-fd", str(lock_fd)),
        *("--market-profile", options.market_profile, "--market-seed", str(options.market_seed)),
        *(("--parent", str(options.parent)) if options.parent else ()),
        *(() if options.foreground else ("--detach",)),
    ]
    environment = child_environment(base, layout, url=url)
    with open_log(layout.log_file("supervisor")) as log:
        output = None if options.foreground else log
        with subprocess.Popen(  # noqa: S603 - our own argv
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(socket_fd, lock_fd)
        ) as process:
            _wait_through_interrupts(process)
    if process.returncode != 0:
        raise StartFailed(f"the supervisor ended with {process.returncode}: {tail(layout.log_file('supervisor'), 5)}")


def _wait_through_interrupts(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C reaches the supervisor as well, which then stops in order."""
    while True:
        try:
            process.wait()
        except KeyboardInterrupt:
            continue
        return


def _wait_ready(layout: Layout) -> State:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        state = read_state(layout)
        if state is not None and state.phase is Phase.READY:
            return state
        if not is_running(layout):
            reason = state.error if state is not None and state.error else tail(layout.log_file("supervisor"), 5)
            raise StartFailed(reason or "the supervisor ended without a word")
        time.sleep(_POLL_SECONDS)
    raise StartFailed(f"not ready after {_START_SECONDS:.0f} seconds; see {layout.logs_dir}")


__all__ = ["CloudAway", "PortInUse", "Running", "StartFailed", "StartOptions", "find", "live_clusters", "start", "stop"]
