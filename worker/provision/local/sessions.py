"""Nodes as process sessions: start one, see whether it lives, kill all of it.

A node is the session that its agent leads, whatever process groups its members made, and every descendant of a member
(one that left the session by setsid and whose parents live). A zombie counts as dead: init or the daemon reaps it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_MAX_KILL_ROUNDS = 200
_ROUND_SECONDS = 0.01
LOG_NAME = "agent.log"
MAX_LOG_BYTES = 4 * 2**20


@dataclass(frozen=True, kw_only=True)
class NodeProcess:
    """A node's agent: its pid, which is its session's id too, and a birth mark that no later process with it shares."""

    pid: int
    birth: str


def start_node(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the agent as the leader of a new session in `folder`, its output appended to agent.log. Errors: OSError."""
    descriptor = os.open(folder / LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        return subprocess.Popen(  # noqa: S603 - the command is the deployment's own
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    finally:
        os.close(descriptor)


def identify_process(pid: int) -> NodeProcess | None:
    """The process now behind a pid, or None when there is none or a zombie."""
    try:
        process = psutil.Process(pid)
        birth = _read_birth(process)
        is_dead = process.status() == psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return None
    return None if is_dead else NodeProcess(pid=pid, birth=birth)


def _read_birth(process: psutil.Process) -> str:
    """When it started: on Linux in ticks of this boot, which no change of the wall clock moves. Errors: OSError."""
    stat = Path(f"/proc/{process.pid}/stat")
    if not sys.platform.startswith("linux"):
        return f"{process.create_time():.2f}"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{stat.read_text().rpartition(')')[2].split()[19]}"


def is_alive(node: NodeProcess) -> bool:
    """Whether this very process lives: a pid that was given again is another process."""
    return identify_process(node.pid) == node


def find_process_by_argument(argument: str) -> NodeProcess | None:
    """The leader of a session with this very argument: a node whose start was cut off before its pid was written."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if argument in process.cmdline() and os.getsid(process.pid) == process.pid:
                return identify_process(process.pid)
    return None


def list_members(node: NodeProcess) -> list[int]:
    """The pids of the node's session and of its members' descendants, zombies left out."""
    leader = identify_process(node.pid)
    if leader not in (None, node):
        return []  # the number belongs to a stranger, so nothing of the old session was left
    parents: dict[int, int] = {}
    members: set[int] = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            parents[process.pid] = process.ppid()
            if os.getsid(process.pid) == node.pid:
                members.add(process.pid)
    return sorted(_with_descendants(members, parents))


def kill_session(node: NodeProcess, sleep_seconds: float = _ROUND_SECONDS) -> bool:
    """SIGKILL every member until none is left; False when some outlive the bound (about two seconds)."""
    for _ in range(_MAX_KILL_ROUNDS):
        members = list_members(node)
        if not members:
            return True
        for pid in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(sleep_seconds)
    return False


def bound_log(folder: Path) -> None:
    """Cut the agent's log to nothing past its bound, keeping what it held as `agent.log.1`. Errors: none."""
    path = folder / LOG_NAME
    with contextlib.suppress(OSError):
        if path.stat().st_size > MAX_LOG_BYTES:
            with path.open("rb") as file:
                file.seek(-MAX_LOG_BYTES, os.SEEK_END)
                path.with_name(f"{LOG_NAME}.1").write_bytes(file.read(MAX_LOG_BYTES))
            os.truncate(path, 0)


def _with_descendants(members: set[int], parents: Mapping[int, int]) -> set[int]:
    children: dict[int, list[int]] = defaultdict(list)
    for pid, parent in parents.items():
        children[parent].append(pid)
    found, todo = set(members), list(members)
    while todo:
        for child in children[todo.pop()]:
            if child not in found:
                found.add(child)
                todo.append(child)
    return found - {os.getpid(), 0, 1}
