"""The ranks' output: read without ever blocking them, cleaned, bounded, kept in a file and handed to the heartbeat.

Bounds: a line is cut at 16 KiB; a node's lines wait for the service in a buffer of 2 MB whose oldest lines go first; above
1 MiB/s a stream's bytes are dropped unread. Every dropped line is counted. A file keeps the last 8 to 16 MiB of a rank.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Literal

from training.node.clock import utc_now
from training.node.redaction import Redactor, clean_line
from training.protocol.messages import MAX_LOG_LINE_CHARACTERS, MAX_LOG_LINES, LogLine

Stream = Literal["stdout", "stderr", "agent"]

AGENT_RANK = -1
TAIL_LINES = 50
MAX_LINE_BYTES = 16 * 1024
MAX_BUFFER_CHARACTERS = 2_000_000
MAX_MESSAGE_CHARACTERS = 256_000
MAX_FILE_BYTES = 8 * 1024 * 1024
BYTES_A_SECOND = 1024 * 1024
BURST_BYTES = 2 * 1024 * 1024
HELD_BYTES = 8 * 1024

_LINE_END = re.compile(rb"\r\n|\n|\r")


class LineSplitter:
    """Bytes to lines. A carriage return ends a line too, as progress bars write it. Empty lines vanish."""

    def __init__(self) -> None:
        self._partial = bytearray()
        self._is_skipping = False

    def feed(self, chunk: bytes) -> list[tuple[bytes, bool]]:
        """The lines finished by `chunk`, each with whether it was cut."""
        *complete, rest = _LINE_END.split(chunk)
        lines = [line for piece in complete if (line := self._finish(piece)) is not None]
        if (line := self._extend(rest)) is not None:
            lines.append(line)
        return lines

    def break_off(self, *, is_inside_line: bool) -> None:
        """Bytes are missing here. Half a line is never joined to another: that could show part of a secret."""
        self._partial.clear()
        self._is_skipping = is_inside_line

    def flush(self) -> list[tuple[bytes, bool]]:
        """What is left when the stream ends."""
        line = self._finish(b"")
        return [line] if line is not None else []

    def _extend(self, piece: bytes) -> tuple[bytes, bool] | None:
        if self._is_skipping:
            return None
        self._partial += piece
        if len(self._partial) <= MAX_LINE_BYTES:
            return None
        line = bytes(self._partial[:MAX_LINE_BYTES])
        self._partial.clear()
        self._is_skipping = True
        return line, True

    def _finish(self, piece: bytes) -> tuple[bytes, bool] | None:
        cut = self._extend(piece)
        was_skipping, self._is_skipping = self._is_skipping, False
        line = bytes(self._partial)
        self._partial.clear()
        if was_skipping:
            return cut
        return (line, False) if line else None


class RateBudget:
    """A token bucket of bytes. `now` is in seconds on any clock that does not go back."""

    def __init__(self, now: float, rate: int = BYTES_A_SECOND, burst: int = BURST_BYTES) -> None:
        self._rate, self._burst = rate, burst
        self._left, self._at = float(burst), now

    def take(self, size_bytes: int, now: float) -> bool:
        """Whether so many bytes may pass now."""
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if size_bytes > self._left:
            return False
        self._left -= size_bytes
        return True


class LogSink:
    """Where every line of the node goes. Safe to use from any thread."""

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        self._folder = folder
        self._redactor = redactor
        self._lock = threading.Lock()
        self._waiting: deque[LogLine] = deque()
        self._waiting_characters = 0
        self._dropped = 0
        self._tails: dict[int, deque[str]] = defaultdict(lambda: deque(maxlen=TAIL_LINES))

    def write(self, rank: int, stream: Stream, lines: Sequence[tuple[bytes, bool]]) -> None:
        """Take lines, each with whether it was cut."""
        cleaned = [clean_line(raw, self._redactor, MAX_LOG_LINE_CHARACTERS, is_cut=is_cut) for raw, is_cut in lines]
        texts = [text for text in cleaned if text]
        if not texts:
            return
        at = utc_now()
        with self._lock:
            self._tails[rank].extend(texts)
            self._append_to_file(rank, texts)
            self._waiting.extend(LogLine(at=at, rank=rank, stream=stream, text=text) for text in texts)
            self._waiting_characters += sum(map(len, texts))
            self._drop_oldest()

    def tell(self, text: str) -> None:
        """A line of the agent itself, to its own stderr too."""
        for line in text.splitlines():
            self.write(AGENT_RANK, "agent", [(line.encode(), False)])
            sys.stderr.write(f"godwit-node: {self._redactor.redact(line)}\n")
        sys.stderr.flush()

    def count_dropped(self, lines: int) -> None:
        with self._lock:
            self._dropped += lines

    def take(self) -> tuple[tuple[LogLine, ...], int]:
        """As many of the oldest waiting lines as one heartbeat carries, and the lines dropped since the last take."""
        with self._lock:
            lines: list[LogLine] = []
            characters = 0
            while self._waiting and len(lines) < MAX_LOG_LINES and characters < MAX_MESSAGE_CHARACTERS:
                line = self._waiting.popleft()
                characters += len(line.text)
                lines.append(line)
            self._waiting_characters -= characters
            dropped, self._dropped = self._dropped, 0
            return tuple(lines), dropped

    def give_back(self, lines: tuple[LogLine, ...], dropped: int) -> None:
        """What a heartbeat took and could not deliver."""
        with self._lock:
            self._waiting.extendleft(reversed(lines))
            self._waiting_characters += sum(len(line.text) for line in lines)
            self._dropped += dropped
            self._drop_oldest()

    def discard_waiting(self) -> int:
        """Give up on what still waits; how many lines that were."""
        with self._lock:
            count = len(self._waiting)
            self._waiting.clear()
            self._waiting_characters = 0
            return count

    @property
    def has_waiting(self) -> bool:
        with self._lock:
            return bool(self._waiting)

    def tail(self, rank: int) -> tuple[str, ...]:
        """The rank's last lines."""
        with self._lock:
            return tuple(self._tails[rank])

    def _drop_oldest(self) -> None:
        while self._waiting_characters > MAX_BUFFER_CHARACTERS:
            self._waiting_characters -= len(self._waiting.popleft().text)
            self._dropped += 1

    def _append_to_file(self, rank: int, texts: Sequence[str]) -> None:
        path = log_file(self._folder, rank)
        try:
            with path.open("a", encoding="utf-8") as file:
                file.writelines(f"{text}\n" for text in texts)
                is_full = file.tell() > MAX_FILE_BYTES
            if is_full:
                path.replace(path.with_suffix(".log.1"))
        except OSError:
            # A full disk must not stop the reading of the pipe, which would stop the rank. The heartbeat has the lines.
            return


def log_file(folder: Path, rank: int) -> Path:
    return folder / ("node.log" if rank == AGENT_RANK else f"{rank}.log")


def read_stream(pipe: BinaryIO, rank: int, stream: Stream, sink: LogSink) -> None:
    """Pass a pipe's lines to the sink until its end. Floods are dropped, but never the stream's last lines."""
    splitter, budget = LineSplitter(), RateBudget(time.monotonic())
    held = b""
    while chunk := pipe.read1(65_536):  # type: ignore[attr-defined]
        if budget.take(len(chunk), time.monotonic()):
            sink.write(rank, stream, splitter.feed(held + chunk))
            held = b""
            continue
        dropped, held = _hold_end(held + chunk)
        splitter.break_off(is_inside_line=not held)
        sink.count_dropped(dropped)
    sink.write(rank, stream, [*splitter.feed(held), *splitter.flush()])
    pipe.close()


def _hold_end(data: bytes) -> tuple[int, bytes]:
    """Lines dropped, and the whole lines at the end that are kept."""
    kept = data[-HELD_BYTES:].partition(b"\n")[2]
    return data.count(b"\n") - kept.count(b"\n"), kept
