"""A service for the demonstration alone: its own folder and port, gone at the end."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from service.cli.config import Account
from service.cli.errors import CliError
from service.cli.extras import need_service
from service.cli.output import note

_OF_THE_USERS_SERVICE = frozenset(
    f"GODWIT_{name}"
    for name in (
        *("DATA_DIR", "DATABASE_URL", "BROKER_URL", "CHECKPOINT_ROOT", "SECRET_KEY", "HOST", "PORT", "SERVICE_URL"),
        *("PROVISIONER", "MARKET_PROFILE", "URL", "API_KEY"),
    )
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """`is_temporary`: the folder goes at the end."""

    data_dir: Path
    is_temporary: bool


def choose_place(data_dir: Path | None, *, keep: bool) -> Place:
    if data_dir is not None:
        return Place(data_dir=data_dir, is_temporary=False)
    return Place(data_dir=Path(tempfile.mkdtemp(prefix="godwit-demo-")), is_temporary=not keep)


def without_the_users_service(environment: Mapping[str, str]) -> dict[str, str]:
    """Tuning passes through; what would lead to another database, bucket or port does not."""
    return {name: value for name, value in environment.items() if name not in _OF_THE_USERS_SERVICE}


@contextmanager
def embedded_service(place: Place, market_profile: str) -> Iterator[Account]:
    """Ready on entry; stopped with every node on exit, however that comes. Errors: CliError."""
    with need_service():
        from service.supervisor import control
        from service.supervisor.layout import Layout
    options = control.StartOptions(data_dir=place.data_dir, port=0, market_profile=market_profile, parent=os.getpid())
    is_worth_keeping = True
    try:
        with _ending_signals_as_interrupts():
            try:
                running = control.start(options, without_the_users_service(os.environ))
            except (control.StartFailed, control.PortInUse, OSError) as error:
                raise CliError(f"the service did not start: {error}", remedy=f"see {place.data_dir}/logs") from error
            yield Account(url=running.url, key=Layout(running.data_dir).key_file.read_text().strip())
            is_worth_keeping = False
    except KeyboardInterrupt:
        is_worth_keeping = False
        raise
    finally:
        with _ignoring_interrupts():
            note("stopping the service and every node …")
            control.stop(place.data_dir, stops_nodes=True)
            if place.is_temporary and not is_worth_keeping:
                shutil.rmtree(place.data_dir, ignore_errors=True)
            else:
                note(f"data and logs are kept in {place.data_dir}")


@contextmanager
def _ending_signals_as_interrupts() -> Iterator[None]:
    """A closed terminal and a polite kill stop everything just as Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
