"""What the supervisor tells others about itself: one JSON file, replaced atomically at each change."""

from __future__ import annotations

import contextlib
import fcntl
import os
from enum import StrEnum
from pathlib import Path

from pydantic import ValidationError

from service.supervisor.layout import Layout
from service.supervisor.processes import Identity
from training.protocol.base import Value


class Phase(StrEnum):
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    FAILED = "failed"


class ChildState(Value):
    identity: Identity
    restarts: int = 0


class State(Value):
    supervisor: Identity
    url: str
    phase: Phase
    error: str | None = None
    children: dict[str, ChildState] = {}


def write_state(layout: Layout, state: State) -> None:
    draft = layout.state_file.with_suffix(".tmp")
    draft.write_text(state.model_dump_json(indent=1))
    draft.replace(layout.state_file)


def read_state(layout: Layout) -> State | None:
    """None when there is none, or none that can be read."""
    try:
        return State.model_validate_json(layout.state_file.read_bytes())
    except (OSError, ValidationError):
        return None


def remove_state(layout: Layout) -> None:
    with contextlib.suppress(FileNotFoundError):
        layout.state_file.unlink()


def try_lock(path: Path) -> int | None:
    """A descriptor that holds the lock (and hands it on to a child that inherits it), or None: another holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
