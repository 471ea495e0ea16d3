"""The node's ranks: started together, signalled together, each end told once."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from training.node.children import Child, Watchdog
from training.node.logs import LogSink
from training.protocol.launch_spec import LaunchSpec

RUNTIME = Path(__file__).resolve().parents[1] / "launch.py"
"""Started by its path: no folder of a user's can hide it, and the agent need not import it."""


def rank_command(spec: LaunchSpec) -> tuple[str, ...]:
    """What a rank executes: the bundled runtime, isolated from the folder that it runs in, or the user's command."""
    if spec.run is not None:
        return ("/bin/sh", "-c", spec.run)
    return (sys.executable, "-P", str(RUNTIME), "run")


def local_ranks(spec: LaunchSpec) -> range:
    """The global ranks of this node."""
    first = spec.node_rank * spec.ranks_per_node
    return range(first, first + spec.ranks_per_node)


class Ranks:
    """`tell_exit(rank, code)` is called from a thread, once a rank."""

    def __init__(
        self, spec: LaunchSpec, *, cwd: Path, sink: LogSink, watchdog: Watchdog, tell_exit: Callable[[int, int], None]
    ) -> None:
        self._spec, self._cwd, self._sink = spec, cwd, sink
        self._watchdog, self._tell_exit = watchdog, tell_exit
        self._children: dict[int, Child] = {}
        self._is_terminating = False

    def start(self, environment_of: Callable[[int], Mapping[str, str]]) -> None:
        """Start every rank of the node; call from the main thread (see Child). Errors: OSError."""
        for rank in local_ranks(self._spec):
            child = Child(
                rank_command(self._spec),
                env=environment_of(rank),
                cwd=self._cwd,
                rank=rank,
                sink=self._sink,
                watchdog=self._watchdog,
            )
            self._children[rank] = child
            threading.Thread(target=self._await, args=(child,), name=f"rank-{rank}", daemon=True).start()

    def terminate(self) -> None:
        """Ask all for a checkpoint and their end."""
        self._is_terminating = True
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def ask_for_checkpoint(self) -> bool:
        """SIGUSR1 to the first rank's processes that handle it, for it kills any other. False when there is none."""
        child = self._children.get(min(self._children, default=0))
        if child is None:
            return False
        pids = child.catchers_of(signal.SIGUSR1)
        if not pids and not sys.platform.startswith("linux") and self._spec.train is not None:
            pids = (child.group,)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
        return bool(pids)

    def _signal(self, number: int) -> None:
        for child in self._children.values():
            child.signal_group(number)

    def _await(self, child: Child) -> None:
        code = child.wait_leader()
        if not self._is_terminating:
            child.signal_group(signal.SIGKILL)
        child.wait_group()
        child.wait_output()
        self._tell_exit(child.rank, code)
