"""Real processes for whole-system tests: started in sessions of their own, killed by SIGKILL, and none left behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import psutil

from service.domain.observations import ClusterState
from worker.provision.local.records import RecordStore
from worker.provision.local.sessions import NodeProcess, kill_session

T = TypeVar("T")
_PR_SET_PDEATHSIG = 1


class Tired(AssertionError):
    """What was waited for did not come in time."""


def wait_until(look: Callable[[], T | None], what: str, timeout_seconds: float = 60, pause_seconds: float = 0.05) -> T:
    """The first answer of `look` that is true. Errors: Tired."""
    end = time.monotonic() + timeout_seconds
    while time.monotonic() < end:
        if answer := look():
            return answer
        time.sleep(pause_seconds)
    raise Tired(f"waited {timeout_seconds:g} s in vain for {what}")


def start_process(
    argv: Sequence[str], *, cwd: Path, environment: Mapping[str, str], log: Path
) -> subprocess.Popen[bytes]:
    """Leads a session; on Linux it dies with this process too, should that be killed before it can clear up."""
    with log.open("ab") as stream:
        return subprocess.Popen(  # noqa: S603 - our own argv, no shell
            argv,
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform.startswith("linux") else None,
        )


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def kill_process(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to its whole group, and the wait for its end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def kill_nodes(cloud_folder: Path) -> None:
    """Every node that the local cloud has recorded. Its daemon is dead by now, so no more come."""
    for cluster in RecordStore(cloud_folder).load_clusters().values():
        for node in cluster.nodes:
            if cluster.state is not ClusterState.ENDED and node.pid is not None and node.birth is not None:
                kill_session(NodeProcess(pid=node.pid, birth=node.birth))


def find_inside(folder: Path) -> list[psutil.Process]:
    """Live processes that work inside `folder`."""
    root = str(folder.resolve())
    return [process for process in psutil.process_iter() if _works_in(process, root)]


def _works_in(process: psutil.Process, root: str) -> bool:
    try:
        cwd = process.cwd()
    except (psutil.Error, OSError):
        return False
    return cwd == root or cwd.startswith(f"{root}/")


def list_command_lines(processes: Iterable[psutil.Process]) -> list[str]:
    lines = []
    for process in processes:
        with contextlib.suppress(psutil.Error, OSError):
            lines.append(" ".join(process.cmdline()))
    return lines
