"""The database's upgrade, its failures in a user's words."""

from __future__ import annotations

from sqlalchemy.exc import SQLAlchemyError

from service.db import migrate
from service.supervisor.settings import load_settings


class DatabaseFailed(Exception):
    """Says what failed; never the URL, which may hold a password."""


def upgrade_database() -> str | None:
    """The revision that the database is at now. Errors: SettingsInvalid, DatabaseFailed."""
    settings = load_settings()
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        migrate.upgrade(settings.database)
    except (SQLAlchemyError, OSError) as error:
        cause = getattr(error, "orig", None) or error
        raise DatabaseFailed(f"the database cannot be upgraded ({type(cause).__name__})") from error
    return migrate.newest_revision()
