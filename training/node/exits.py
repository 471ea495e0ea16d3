"""How the ranks' exits add up to one verdict, and what to tell the user.

A rank that failed because a peer *node* vanished looks like an error of the user's code from here. The agent reports
what it sees; the service judges, and asks first whether the gang's other clusters are gone.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from training.protocol.messages import ExitKind
from training.protocol.rank_contract import ExitCode


@dataclass(frozen=True, kw_only=True)
class RankExit:
    """One rank's end. `code` is negative for a signal.

    `is_asked` when it had been asked to drain before; `is_killed` when the agent's own SIGKILL ended it.
    """

    rank: int
    code: int
    is_asked: bool = False
    is_killed: bool = False


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How the node's work ended. `reason` is a sentence for the user where no log says it."""

    kind: ExitKind
    code: int | None = None
    rank: int | None = None
    reason: str | None = None


_KINDS = {
    ExitCode.COMPLETED: ExitKind.COMPLETED,
    ExitCode.DRAINED: ExitKind.DRAINED,
    ExitCode.INFRASTRUCTURE: ExitKind.INFRASTRUCTURE,
    ExitCode.NO_USABLE_CHECKPOINT: ExitKind.NO_USABLE_CHECKPOINT,
}
_KINDS_BY_CODE = {int(code): kind for code, kind in _KINDS.items()}
_AGENT_CODES = {kind: int(code) for code, kind in _KINDS.items()} | {ExitKind.USER_ERROR: 1}


def kind_of(code: int, *, is_asked: bool) -> ExitKind:
    """What one exit code says.

    Once a drain was asked for, an unknown code is no evidence against the user's code: many programs leave a SIGTERM
    handler with 1 or 143. A SIGTERM that nobody here sent comes from the machine, as when it shuts down.
    """
    if (known := _KINDS_BY_CODE.get(code)) is not None:
        return known
    if is_asked:
        return ExitKind.DRAINED
    return ExitKind.INFRASTRUCTURE if code == -signal.SIGTERM else ExitKind.USER_ERROR


def classify(exits: Sequence[RankExit]) -> Verdict:
    """The verdict over all ranks, given in the order in which they ended.

    The first failure decides, except that a lost peer gives way to any other: it is that one's consequence.
    """
    judged = [(entry, kind_of(entry.code, is_asked=entry.is_asked)) for entry in exits if not entry.is_killed]
    failed = [(entry, kind) for entry, kind in judged if kind not in (ExitKind.COMPLETED, ExitKind.DRAINED)]
    causes = [pair for pair in failed if pair[1] is not ExitKind.INFRASTRUCTURE] or failed
    drained = [pair for pair in judged if pair[1] is ExitKind.DRAINED]
    decisive = causes or drained
    if decisive:
        entry, kind = decisive[0]
        return Verdict(kind=kind, code=entry.code, rank=entry.rank)
    if len(judged) < len(exits) or not exits:
        return Verdict(kind=ExitKind.DRAINED, reason="the ranks did not end within the drain's bound and were killed")
    return Verdict(kind=ExitKind.COMPLETED, code=0)


def agent_exit_code(verdict: Verdict | None) -> int:
    """The agent's own exit code: the ranks' contract, 1 for an error of the user's code, 3 when it was fenced off."""
    return 3 if verdict is None else _AGENT_CODES[verdict.kind]


_BY_TEXT: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'"),
        "The Python module '{0}' is missing on the node: install it in `setup:`, for example `pip install {0}`.",
    ),
    (
        re.compile(r"CUDA out of memory|OutOfMemoryError"),
        "The accelerator ran out of memory: halve the micro-batch and double the accumulation.",
    ),
    (
        re.compile(r"No space left on device"),
        "The node's disk is full: keep fewer local files or take an instance with a larger disk.",
    ),
    (
        re.compile(r"can't open file '([^']+)'|No such file or directory: '([^']+)'"),
        "The file '{0}' is not on the node: is it inside `workdir`, and is its path relative to it?",
    ),
    (re.compile(r"Permission denied"), "A file may not be read or run: check the permissions in `workdir`."),
)
_BY_CODE: dict[int, str] = {
    -signal.SIGKILL: "The rank was killed from outside, most often because the node ran out of memory: "
    "take a smaller micro-batch, fewer data workers or an instance with more memory.",
    -signal.SIGSEGV: "A native library crashed: check that the versions that `setup:` installs fit each other.",
    -signal.SIGUSR1: "The command died of SIGUSR1, which asks for a checkpoint: handle it or ignore it.",
    126: "The command was found and could not be run: make it executable, or name its interpreter.",
    127: "The command was not found: install it in `setup:`, or give its path relative to `workdir`.",
}
_BY_CODE[137] = _BY_CODE[-signal.SIGKILL]


def find_remedy(code: int | None, log_tail: Sequence[str]) -> str:
    """What the user can do about it, from the last log lines and the exit code."""
    for line in reversed(log_tail):
        for pattern, remedy in _BY_TEXT:
            if match := pattern.search(line):
                found = [group for group in match.groups() if group]
                return remedy.format(*found)[:2000]
    by_code = _BY_CODE.get(code) if code is not None else None
    return by_code or "Read the last log lines, correct the code, and retry the job: it resumes from its checkpoint."
