"""Processes by pid and start time, so that a reused pid is never taken for ours."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import psutil

from training.protocol.base import Value

_SAME_START_SECONDS = 0.05
_POLL_SECONDS = 0.05
_START_FIELD = 18
"""`starttime`, field 22 of proc(5), counted from the one after the state."""


class Identity(Value):
    """`started_at` is the kernel's word in seconds: since the boot on Linux, where the wall clock may step, else since 1970."""

    pid: int
    started_at: float


def identify(pid: int) -> Identity | None:
    """None when there is no such process (a zombie is none)."""
    started_at = _read_linux_start(pid) if sys.platform == "linux" else _ask_psutil(pid)
    return None if started_at is None else Identity(pid=pid, started_at=started_at)


def _read_linux_start(pid: int) -> float | None:
    """From /proc: psutil's create_time moves with the wall clock."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state in ("Z", "X") else int(fields[_START_FIELD]) / os.sysconf("SC_CLK_TCK")


def _ask_psutil(pid: int) -> float | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


def is_alive(identity: Identity) -> bool:
    found = identify(identity.pid)
    return found is not None and abs(found.started_at - identity.started_at) < _SAME_START_SECONDS


def stop_group(identity: Identity, *, grace_seconds: float) -> None:
    """SIGTERM to the process group that it leads, SIGKILL after the grace; returns when it is gone."""
    _signal_group(identity, signal.SIGTERM)
    if not wait_gone(identity, grace_seconds):
        _signal_group(identity, signal.SIGKILL)
        wait_gone(identity, 5)


def wait_gone(identity: Identity, timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
    while is_alive(identity):
        if time.monotonic() >= deadline:
            return False
        reap(identity.pid)
        time.sleep(_POLL_SECONDS)
    return True


def reap(pid: int) -> None:
    """Collects a dead child; anyone else's process is left alone."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _signal_group(identity: Identity, number: signal.Signals) -> None:
    if is_alive(identity):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(identity.pid, number)
