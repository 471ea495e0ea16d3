"""Becomes a rank: `child_start.py WATCHDOG_FD PARENT_PID COMMAND…`, run as a file, with the standard library alone.

Between fork and exec it tells the watchdog its process group, so that no instant is left in which the agent can die and
the rank live on. It runs as a program of its own because Python code between fork and exec of a threaded parent can
deadlock.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_NOT_FOUND, _NOT_RUNNABLE = 127, 126


def _die_with_parent(parent_pid: int) -> None:
    if not sys.platform.startswith("linux"):
        return
    # Best effort: the watchdog holds without it, only later.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def main() -> None:
    watchdog_fd, parent_pid, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    os.write(watchdog_fd, f"{os.getpgrp()}\n".encode())
    os.close(watchdog_fd)
    _die_with_parent(parent_pid)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the user's own command, on the user's own node
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_RUNNABLE)


if __name__ == "__main__":
    main()
