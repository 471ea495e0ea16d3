"""Why a rank stops early. Each error carries the exit code that tells the node agent what to do next."""

from __future__ import annotations

from training.protocol.rank_contract import ExitCode

USER_ERROR_CODE = 2


class RunError(Exception):
    """The run cannot go on. The message is one line, for the user, and holds no secret."""

    exit_code: int = 1


class UserError(RunError):
    """The spec or the data is at fault; a relaunch would end the same way."""

    exit_code = USER_ERROR_CODE


class NoUsableCheckpointError(RunError):
    """A checkpoint was promised and cannot be used."""

    exit_code = int(ExitCode.NO_USABLE_CHECKPOINT)


class InfrastructureError(RunError):
    """The machine is at fault: a lost peer, a disk that takes no checkpoint."""

    exit_code = int(ExitCode.INFRASTRUCTURE)
