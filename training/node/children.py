"""Child processes of the agent, ranks and set-up alike: own process group, the agent's session, dead when it dies."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from training.node.logs import LogSink, read_stream

_FOLDER = Path(__file__).parent
_PR_SET_CHILD_SUBREAPER = 36
GROUP_POLL_SECONDS = 0.02
READERS_SECONDS = 2.0
"""How long output is waited for after a child's end: a process that escaped its group may hold the pipe open."""


def adopt_orphans() -> None:
    """Make this process the parent of its descendants' orphans, on Linux, so that it can reap them.

    In a container the first process may reap late or never, and a group whose dead nobody reaps looks alive.
    """
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Watchdog:
    """The process that outlives the agent by a moment. Errors: OSError."""

    def __init__(self) -> None:
        read_end, self.fd = os.pipe()
        # Killing everything in the session is right only where the session is the agent's own.
        session_id = os.getpid() if os.getsid(0) == os.getpid() else 0
        self._process = subprocess.Popen(  # noqa: S603 - our own file
            [sys.executable, "-I", "-S", str(_FOLDER / "watchdog.py"), str(session_id)],
            stdin=read_end,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
            env={},
        )
        os.close(read_end)

    def forget(self, group: int) -> None:
        """The group is empty; its number may be given to others."""
        with contextlib.suppress(OSError):
            os.write(self.fd, f"-{group}\n".encode())


class Child:
    """One running child. Its group's number is its pid."""

    def __init__(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, rank: int, sink: LogSink, watchdog: Watchdog
    ) -> None:
        """Start it. Linux kills it when the calling *thread* ends: call from one that lives as long. Errors: OSError."""
        self.rank = rank
        self._watchdog = watchdog
        self._lock = threading.Lock()
        self._is_group_gone = False
        starter = [sys.executable, "-I", "-S", str(_FOLDER / "child_start.py"), str(watchdog.fd), str(os.getpid())]
        self._process = subprocess.Popen(  # noqa: S603 - what the agent is there for
            [*starter, *argv],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(watchdog.fd,),
            process_group=0,
            cwd=cwd,
            env=dict(env),
        )
        self._readers = [
            threading.Thread(target=read_stream, args=(pipe, rank, stream, sink), daemon=True)
            for pipe, stream in ((self._process.stdout, "stdout"), (self._process.stderr, "stderr"))
        ]
        for reader in self._readers:
            reader.start()

    @property
    def group(self) -> int:
        return self._process.pid

    def signal_group(self, number: int) -> None:
        """Signal every process of the group, if any is left."""
        with self._lock:
            if not self._is_group_gone:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.group, number)

    def wait_leader(self, timeout_seconds: float | None = None) -> int:
        """The exit code, negative for a signal. Errors: subprocess.TimeoutExpired."""
        return self._process.wait(timeout_seconds)

    def wait_group(self) -> None:
        """Wait until no process of the group is left: a shell may die of a signal before the program it started."""
        while self._has_group():
            time.sleep(GROUP_POLL_SECONDS)
        with self._lock:
            self._is_group_gone = True
        self._watchdog.forget(self.group)

    def wait_output(self) -> None:
        deadline = time.monotonic() + READERS_SECONDS
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))

    def catchers_of(self, number: int) -> tuple[int, ...]:
        """The group's processes that handle the signal; Linux alone can tell, elsewhere there are none."""
        return tuple(pid for pid in _group_members(self.group) if _is_caught(pid, number))

    def _has_group(self) -> bool:
        """Call once the leader is reaped: what is left of the group is adopted, and reaped here."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-self.group, os.WNOHANG)[0]:
                pass
        try:
            os.killpg(self.group, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def _group_members(group: int) -> tuple[int, ...]:
    members: list[int] = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getpgid(int(path.name)) == group:
                members.append(int(path.name))
    return tuple(members)


def _is_caught(pid: int, number: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    for line in status.splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def stop_child(child: Child, grace_seconds: float) -> None:
    """SIGTERM, and SIGKILL after the grace."""
    child.signal_group(signal.SIGTERM)
    try:
        child.wait_leader(grace_seconds)
    except subprocess.TimeoutExpired:
        child.signal_group(signal.SIGKILL)
