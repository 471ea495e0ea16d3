"""Small threads that look at something again and again: metadata endpoints, the metrics file, the machine itself."""

from __future__ import annotations

import threading
from collections.abc import Callable

from training.node.link import LinkDown
from training.node.notices import NoticeReader
from training.protocol.messages import Notice

FIRST_TRIES = 10
QUIET_SECONDS = 60.0
"""How often an endpoint that never answered is asked again: this machine is most likely not of its cloud."""


class Repeater(threading.Thread):
    """Calls `look` until stopped; it returns the seconds until the next call, or None to end."""

    def __init__(self, name: str, look: Callable[[], float | None]) -> None:
        super().__init__(name=name, daemon=True)
        self._look = look
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.is_set():
            delay = self._look()
            if delay is None:
                return
            self._stopped.wait(delay)

    def stop(self) -> None:
        self._stopped.set()


class NoticeWatch:
    """Asks one reader. Tells each kind of notice once, and ends with the preemption."""

    def __init__(self, reader: NoticeReader, poll_seconds: float, tell: Callable[[Notice], None]) -> None:
        self._reader, self._poll_seconds, self._tell = reader, poll_seconds, tell
        self._has_answered = False
        self._failures = 0
        self._told: set[str] = set()

    def look(self) -> float | None:
        try:
            notice = self._reader.read_notice()
        except LinkDown:
            self._failures += 1
            is_absent = not self._has_answered and self._failures >= FIRST_TRIES
            return max(QUIET_SECONDS, self._poll_seconds) if is_absent else self._poll_seconds
        self._has_answered = True
        if notice is not None and notice.kind not in self._told:
            self._told.add(notice.kind)
            self._tell(notice)
        return None if "preemption" in self._told else self._poll_seconds
