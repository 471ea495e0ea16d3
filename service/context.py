"""What every entry point is built from, the API's requests and the workers' tasks alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from service.clock import Clock, system_clock
from service.db.session import SessionFactory, make_engine, make_session_factory
from service.seal import Sealer, load_key
from service.settings import Settings
from training.protocol.bucket import open_bucket

if TYPE_CHECKING:
    from obstore.store import ObjectStore


@dataclass(frozen=True)
class Context:
    """`wake` tells the workers that a job has news; it may lose the message and never raises."""

    settings: Settings
    sessions: SessionFactory
    clock: Clock
    sealer: Sealer
    wake: Callable[[str], None] = field(default=lambda _job_id: None)

    @cached_property
    def bucket(self) -> ObjectStore:
        return open_bucket(self.settings.bucket)


def make_context(
    settings: Settings, *, clock: Clock = system_clock, wake: Callable[[str], None] | None = None
) -> Context:
    """Connects to nothing until it is used."""
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = settings.secret_key
    sealer = Sealer(key.get_secret_value().encode() if key else load_key(settings.data_dir / "secret.key"))
    sessions = make_session_factory(make_engine(settings.database))
    return Context(settings, sessions, clock, sealer, wake or (lambda _job_id: None))
