"""The supervisor's loop: start the children in order, start again what dies, stop everything when told.

SIGTERM and SIGINT stop the service and leave nodes alone: they train on within their grants, and the next start takes them
back. SIGUSR2 stops the nodes as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import httpx

from service.supervisor.children import API, BEAT, STOP_ORDER, WORKER, ChildSpec
from service.supervisor.cloud import CloudAway, terminate_all
from service.supervisor.layout import Layout
from service.supervisor.logs import open_log, rotate_log, tail
from service.supervisor.processes import Identity, identify, is_alive
from service.supervisor.restarts import Restarts, is_due, note_death, note_start
from service.supervisor.state import ChildState, Phase, State, remove_state, write_state

TICK_SECONDS = 0.2
READY_SECONDS = 90.0
STOP_NODES_SECONDS = 20.0
_GRACE_SECONDS = {API: 5.0, WORKER: 5.0}
_ROTATE_EVERY_TICKS = 50


class StartFailed(Exception):
    """The service did not come up; the message says why, in a user's words."""


@dataclass
class _Child:
    spec: ChildSpec
    process: subprocess.Popen[bytes] | None = None
    identity: Identity | None = None
    restarts: Restarts = field(default_factory=Restarts)


@dataclass(kw_only=True)
class Supervisor:
    """Owns its children. `parent`, if given, is whose end is this one's too, nodes included."""

    layout: Layout
    specs: Sequence[ChildSpec]
    environment: Mapping[str, str]
    url: str
    socket_fd: int
    parent: Identity | None = None

    def __post_init__(self) -> None:
        self._children = {spec.name: _Child(spec) for spec in self.specs}
        self._identity = _own_identity()
        self._phase = Phase.STARTING
        self._is_stopping = self._stops_nodes = False

    def run(self) -> None:
        """Returns when everything is stopped. Errors: StartFailed, with everything stopped."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
            signal.signal(number, self._on_signal)
        try:
            self._publish()
            self._start_those(need_database=False)
            self._prepare()
            self._start_those(need_database=True)
            self._watch()
        except StartFailed as failure:
            self._stop()
            self._publish(Phase.FAILED, str(failure))
            raise
        self._stop()
        remove_state(self.layout)

    def _on_signal(self, number: int, _frame: object) -> None:
        self._is_stopping = True
        self._stops_nodes |= number == signal.SIGUSR2

    def _prepare(self) -> None:
        """A process of its own, so that the supervisor stays small."""
        log = self.layout.log_file("prepare")
        with open_log(log) as output:
            argv = (sys.executable, "-P", "-m", "service.supervisor.prepare")
            done = subprocess.run(argv, env=dict(self.environment), stdout=output, stderr=output, check=False)  # noqa: S603
        if done.returncode != 0 and not self._is_stopping:
            raise StartFailed(f"the database could not be prepared (see {log}):\n{tail(log, 5)}")

    def _start_those(self, *, need_database: bool) -> None:
        for child in self._children.values():
            if child.spec.needs_database is need_database:
                self._start(child)
        self._publish()

    def _start(self, child: _Child) -> None:
        with open_log(self.layout.log_file(child.spec.name)) as output:
            child.process = subprocess.Popen(  # noqa: S603 - our own argv
                child.spec.argv,
                env=dict(self.environment),
                cwd=self.layout.data_dir,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=(self.socket_fd,) if child.spec.inherits_socket else (),
            )
        child.identity = identify(child.process.pid)
        child.restarts = note_start(child.restarts, time.monotonic())

    def _watch(self) -> None:
        ticks, give_up_at = 0, time.monotonic() + READY_SECONDS
        while not self._is_stopping:
            self._revive(time.monotonic())
            if self._phase is Phase.STARTING:
                self._look_whether_ready(give_up_at)
            if ticks % _ROTATE_EVERY_TICKS == 0:
                self._rotate_logs()
            if self.parent is not None and not is_alive(self.parent):
                self._is_stopping = self._stops_nodes = True
            ticks += 1
            time.sleep(TICK_SECONDS)

    def _revive(self, now: float) -> None:
        for child in self._children.values():
            if child.process is not None and child.process.poll() is not None:
                _report(f"{child.spec.name} ended with {child.process.returncode}")
                child.process = None
                child.restarts = note_death(child.restarts, now)
            if child.process is None and is_due(child.restarts, now):
                self._start(child)
                self._publish()

    def _look_whether_ready(self, give_up_at: float) -> None:
        if is_ready(self.url, needs_broker=len(self._children) > 0):
            self._publish(Phase.READY)
        elif time.monotonic() >= give_up_at:
            raise StartFailed(f"the service is not ready after {READY_SECONDS:.0f} seconds:\n{self._tails()}")

    def _tails(self) -> str:
        failed = [name for name, child in self._children.items() if child.restarts.total] or [API]
        return "\n".join(f"{name}: {tail(self.layout.log_file(name), 5)}" for name in failed)

    def _rotate_logs(self) -> None:
        for path in self.layout.logs_dir.glob("*.log"):
            rotate_log(path)

    def _stop(self) -> None:
        if self._children:
            self._publish(Phase.STOPPING)
        self._ask_to_stop((BEAT, WORKER, API))
        for name in STOP_ORDER:
            if name == API and self._stops_nodes:
                self._stop_nodes()
            child = self._children.get(name)
            if child is not None and child.process is not None:
                _stop_child(child.process, _GRACE_SECONDS.get(name, 3.0))
                child.process = None
        self.layout.broker_socket.unlink(missing_ok=True)

    def _ask_to_stop(self, names: Sequence[str]) -> None:
        """All at once: each may take its grace, and they take it together."""
        for name in names:
            child = self._children.get(name)
            if child is not None and child.process is not None:
                child.process.terminate()

    def _stop_nodes(self) -> None:
        try:
            left = terminate_all(self.layout.cloud_dir, STOP_NODES_SECONDS)
        except CloudAway as error:
            _report(f"nodes may be left: the local cloud does not answer ({error})")
            return
        for cluster in left:
            _report(f"cluster {cluster.cluster_name} could not be stopped")

    def _publish(self, phase: Phase | None = None, error: str | None = None) -> None:
        self._phase = phase or self._phase
        children = {
            name: ChildState(identity=child.identity, restarts=child.restarts.total)
            for name, child in self._children.items()
            if child.identity is not None
        }
        state = State(supervisor=self._identity, url=self.url, phase=self._phase, error=error, children=children)
        with contextlib.suppress(OSError):  # a full disk must not take the service down
            write_state(self.layout, state)


def is_ready(url: str, *, needs_broker: bool = True) -> bool:
    """The API serves, the broker listens and the workers have swept."""
    try:
        answer = httpx.get(f"{url}/readyz", timeout=2, trust_env=False)
        body = answer.json()
    except (httpx.HTTPError, ValueError):
        return False
    has_broker = body.get("broker") == "ok" or not needs_broker
    return answer.status_code == 200 and has_broker and body.get("sweep_age_seconds") is not None


def _stop_child(process: subprocess.Popen[bytes], grace_seconds: float) -> None:
    """SIGTERM, after the grace SIGKILL, to the group that it leads; a child's pid is its own until it is waited for."""
    process.terminate()
    try:
        process.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _own_identity() -> Identity:
    identity = identify(os.getpid())
    assert identity is not None
    return identity


def _report(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}\n")
    sys.stderr.flush()
