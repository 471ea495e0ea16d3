"""The command line alone needs little; what runs a service needs the extras of the wheel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from service.cli.errors import CliError


@contextmanager
def need_service() -> Iterator[None]:
    """Around imports. Errors: CliError that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise CliError(
            f"this needs the package {error.name}, which is not installed",
            remedy="install 'godwit[worker,training]' to run the service on this machine",
        ) from error
