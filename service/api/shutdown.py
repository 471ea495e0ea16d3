"""Tells streams that the process is ending, so that they end first and the server need not wait for them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def announced_shutdown(closing: threading.Event) -> Iterator[None]:
    """Set `closing` on SIGTERM or SIGINT and pass the signal on. Outside the main thread nobody can listen."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier: dict[signal.Signals, Any] = {}

    def announce(number: int, frame: FrameType | None) -> None:
        closing.set()
        handler = earlier.get(signal.Signals(number))
        if callable(handler):
            handler(number, frame)

    for number in (signal.SIGTERM, signal.SIGINT):
        earlier[number] = signal.signal(number, announce)
    try:
        yield
    finally:
        for number, handler in earlier.items():
            if signal.getsignal(number) is announce:
                signal.signal(number, handler)
