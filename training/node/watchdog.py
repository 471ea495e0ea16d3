"""Kills what the agent leaves behind: `watchdog.py SESSION_ID`, run as a file, with the standard library alone.

Standard input is a pipe whose other end the agent alone holds: process groups of ranks come through it, one a line
(`123` started, `-123` gone). Its end means that the agent is dead, however it died.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path


def _groups_until_eof() -> set[int]:
    groups: set[int] = set()
    for line in sys.stdin.buffer:
        with contextlib.suppress(ValueError):
            number = int(line)
            groups.discard(-number)
            if number > 0:
                groups.add(number)
    return groups


def _processes_of_session(session_id: int) -> set[int]:
    """Linux alone lists them without a tool; elsewhere the groups must do."""
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if os.getsid(int(path.name)) == session_id:
                found.add(int(path.name))
    return found - {os.getpid(), session_id}


def main() -> None:
    session_id = int(sys.argv[1])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for group in _groups_until_eof():
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    if session_id:
        for pid in _processes_of_session(session_id):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
