"""The API as a real process, which can be killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from service.settings import Settings

_ROOT = Path(__file__).parents[3]


@dataclass(frozen=True, kw_only=True)
class Server:
    """A running API process."""

    url: str
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)


@contextmanager
def run_server(settings: Settings, factory: str = "service.app:create_app") -> Iterator[Server]:
    """uvicorn as `godwit up` starts it; killed at the end if it still runs."""
    port = _free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "GODWIT_DATA_DIR": str(settings.data_dir),
        "GODWIT_DATABASE_URL": settings.database,
        "GODWIT_BROKER_URL": settings.broker,
    }
    argv = [sys.executable, "-m", "uvicorn", factory, "--factory", "--port", str(port)]
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    server = Server(url=f"http://127.0.0.1:{port}", process=process)
    try:
        _wait_until_live(server)
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)


def wait_for(question: object, seconds: float = 90) -> None:
    """Poll until the callable says yes. Errors: AssertionError."""
    assert callable(question)
    until = time.monotonic() + seconds
    while not question():
        assert time.monotonic() < until, f"{question} did not come true"
        time.sleep(0.05)


def _wait_until_live(server: Server) -> None:
    def is_live() -> bool:
        assert server.process.poll() is None, "the server ended"
        try:
            return httpx.get(f"{server.url}/livez", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False

    wait_for(is_live)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
