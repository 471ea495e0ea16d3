"""Takes secrets and terminal control out of text before it is kept or sent anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "***"
MIN_SECRET_CHARACTERS = 4
"""Shorter values are no secrets, and masking them would make every log unreadable."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC, DCS and other strings, with their payload
    r"|\x1b[ -/]*[0-~]"  # two-character escapes
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
# Control characters but tab, and the marks that reorder text on screen.
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Redactor:
    """Masks secrets in one line of text. A secret of several lines is masked line by line."""

    def __init__(self, secrets: Iterable[str]) -> None:
        parts = {part.strip() for secret in secrets for part in (secret, *secret.splitlines())}
        # Longest first, so that a secret that contains another is masked whole.
        kept = sorted((part for part in parts if len(part) >= MIN_SECRET_CHARACTERS), key=len, reverse=True)
        self.longest = len(kept[0]) if kept else 0
        self._pattern = re.compile("|".join(map(re.escape, kept))) if kept else None

    def redact(self, text: str) -> str:
        return self._pattern.sub(MASK, text) if self._pattern else text


def strip_controls(text: str) -> str:
    """Text without escape sequences and control characters."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text))


def clean_line(raw: bytes, redactor: Redactor, max_characters: int, *, is_cut: bool = False) -> str:
    """One log line, safe to keep. `is_cut` when the line went on: its end may then hold the start of a secret."""
    text = redactor.redact(strip_controls(raw.decode("utf-8", "replace")))
    if is_cut and redactor.longest:
        text = text[: max(0, len(text) - redactor.longest)]
    return text if len(text) <= max_characters else text[: max_characters - 1] + "…"
