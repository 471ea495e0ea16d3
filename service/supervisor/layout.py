"""Where the embedded service keeps things."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

_MAX_SOCKET_PATH_BYTES = 100
"""A unix socket's path has room for 103 bytes on macOS and 107 on Linux."""


@dataclass(frozen=True, slots=True)
class Layout:
    """All below `data_dir`, which is the user's alone (0700)."""

    data_dir: Path

    @property
    def lock_file(self) -> Path:
        """Locked (flock) for as long as a supervisor lives."""
        return self.data_dir / "supervisor.lock"

    @property
    def state_file(self) -> Path:
        return self.data_dir / "supervisor.json"

    @property
    def key_file(self) -> Path:
        """The first admin key, made on the first start (0600)."""
        return self.data_dir / "admin.key"

    @property
    def logs_dir(self) -> Path:
        return self.data_dir / "logs"

    @property
    def broker_dir(self) -> Path:
        return self.data_dir / "broker"

    @property
    def cloud_dir(self) -> Path:
        """The local cloud daemon's."""
        return self.data_dir / "cloud"

    @property
    def beat_schedule(self) -> Path:
        return self.data_dir / "beat-schedule"

    @property
    def broker_socket(self) -> Path:
        """In the data folder, or where the path is short enough for a socket."""
        path = self.data_dir / "valkey.sock"
        if len(str(path).encode()) <= _MAX_SOCKET_PATH_BYTES:
            return path
        name = hashlib.sha256(str(self.data_dir).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"godwit-{name}.sock"

    def log_file(self, name: str) -> Path:
        return self.logs_dir / f"{name}.log"

    def create(self) -> None:
        for folder in (self.data_dir, self.logs_dir, self.broker_dir, self.cloud_dir):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
