"""Signals as flags: SIGUSR1 asks for a checkpoint, SIGTERM and Ctrl-C for a checkpoint and an end.

Imports nothing heavy: handlers stand before torch is loaded, since SIGUSR1 kills a process without one.
"""

from __future__ import annotations

import signal
import types

from training.protocol.rank_contract import ExitCode


class Signals:
    """Before `begin_steps` there is nothing to save, so a request to end is followed at once."""

    def __init__(self) -> None:
        self.has_save_request = False
        self.has_stop_request = False
        self._is_stepping = False

    def install(self) -> None:
        """From the main thread."""
        signal.signal(signal.SIGUSR1, self._request_save)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._request_stop)

    def begin_steps(self) -> None:
        self._is_stepping = True

    def _request_save(self, _number: int, _frame: types.FrameType | None) -> None:
        self.has_save_request = True

    def _request_stop(self, _number: int, _frame: types.FrameType | None) -> None:
        self.has_stop_request = True
        if not self._is_stepping:
            raise SystemExit(int(ExitCode.DRAINED))
