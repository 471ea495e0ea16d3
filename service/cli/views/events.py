"""Events as lines."""

from __future__ import annotations

from rich.text import Text

from service.cli.output import clean
from service.cli.views.formats import clock
from service.client.models import Event

_STYLES = {
    "preempt": "magenta",
    "notice": "magenta",
    "lost": "magenta",
    "fail": "red",
    "error": "red",
    "budget": "yellow",
}
_HIDDEN = frozenset({"job_id", "project_id", "attempt_id", "manifest_sha256"})
_MAX_CHARACTERS = 160


def event_line(event: Event) -> Text:
    style = next((style for word, style in _STYLES.items() if word in event.type), "cyan")
    line = Text.assemble((f"{clock(event.at)} ", "dim"), (clean(event.type), style), " ", _details(event))
    line.truncate(_MAX_CHARACTERS, overflow="ellipsis")
    return line


def _details(event: Event) -> str:
    shown = (
        f"{name}={value}"
        for name, value in event.data.items()
        if name not in _HIDDEN and isinstance(value, str | int | float | bool)
    )
    return clean(" ".join(shown)).replace("\n", " ")
