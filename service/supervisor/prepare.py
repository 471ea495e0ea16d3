"""What must be done before the service runs: the database migrated, the first key made. Safe to repeat."""

from __future__ import annotations

import os
from pathlib import Path

from service.clock import system_clock
from service.db.migrate import upgrade
from service.db.session import make_engine, make_session_factory, session_scope
from service.keys.service import create_first_key
from service.settings import Settings
from service.supervisor.layout import Layout


def main() -> None:
    settings = Settings()
    upgrade(settings.database)
    _make_first_key(settings, Layout(settings.data_dir).key_file)


def _make_first_key(settings: Settings, path: Path) -> None:
    """The file is written before the commit: a crash between leaves a file that the next start overwrites."""
    engine = make_engine(settings.database)
    with session_scope(make_session_factory(engine)) as session:
        key = create_first_key(session, now=system_clock())
        if key is not None:
            _write_private(path, key)
    engine.dispose()


def _write_private(path: Path, text: str) -> None:
    draft = path.with_suffix(".tmp")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


if __name__ == "__main__":
    main()
