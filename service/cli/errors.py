"""What a command can end with. Each kind is one exit code, which is part of the command line's contract."""

from __future__ import annotations

from enum import IntEnum

from service.client.errors import FieldError


class ExitStatus(IntEnum):
    OK = 0
    FAILED = 1
    BAD_INPUT = 2
    AWAY = 3
    FORBIDDEN = 4


class CliError(Exception):
    """A user-facing failure: what is wrong, and what to do about it."""

    exit_status = ExitStatus.FAILED

    def __init__(self, message: str, *, remedy: str | None = None, errors: tuple[FieldError, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.errors = errors


class BadInput(CliError):
    exit_status = ExitStatus.BAD_INPUT


class NotSignedIn(CliError):
    exit_status = ExitStatus.FORBIDDEN
