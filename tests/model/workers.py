"""Workers that can die, or stop for a while, at every boundary between the code and the world outside."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from sqlalchemy.orm import Session

from service.context import Context
from service.db.session import make_session_factory
from worker.provision.protocol import Provisioner
from worker.reconcile.tick import tick_job

WAIT_SECONDS = 60


class Crash(BaseException):
    """The process is gone: nothing below may catch this."""


@dataclass
class Boundaries:
    """Counts the crossings of one worker: before and after each commit, before and after each call of the provider."""

    crash_at: int | None = None
    stall_at: int | None = None
    crossed: int = 0

    def __post_init__(self) -> None:
        self.parked, self.released = threading.Event(), threading.Event()
        self.is_killed = False

    def cross(self, *, may_stall: bool) -> None:
        self.crossed += 1
        if self.crash_at is not None and self.crossed >= self.crash_at:
            raise Crash
        if may_stall and self.stall_at is not None and self.crossed >= self.stall_at:
            self.stall_at = None
            self.parked.set()
            assert self.released.wait(WAIT_SECONDS)
            if self.is_killed:
                raise Crash


class Worker:
    """One worker process: the shipped tick over a context whose every commit and call is a boundary."""

    def __init__(self, context: Context, provisioner: Provisioner) -> None:
        self._boundaries = Boundaries()
        factory = make_session_factory(context.sessions.kw["bind"])
        factory.class_ = _make_session_class(factory.class_, self._cross)
        self.context = replace(context, sessions=factory)
        self.provisioner = cast(Provisioner, _Watched(provisioner, self._cross_call))
        self.crossings_before: dict[str, int] = {}
        """By verb: at which crossing of a tick it was last about to be called."""
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def is_stalled(self) -> bool:
        return self._thread is not None

    def run(self, work: Callable[[Context, Provisioner], object], crash_at: int | None) -> bool:
        """Do the work; False when the worker died of it."""
        self._boundaries = Boundaries(crash_at=crash_at)
        try:
            work(self.context, self.provisioner)
        except Crash:
            return False
        finally:
            self._boundaries = Boundaries()
        return True

    def tick(self, job_id: str, crash_at: int | None = None) -> bool:
        return self.run(lambda context, provisioner: tick_job(context, provisioner, job_id), crash_at)

    def stall(self, job_id: str, stall_at: int) -> None:
        """Begin a tick that stops in some call of the provider, with no transaction open, if it makes that many."""
        boundaries = self._boundaries = Boundaries(stall_at=stall_at)
        done = threading.Event()

        def work() -> None:
            try:
                tick_job(self.context, self.provisioner, job_id)
            except Crash:
                pass
            except BaseException as error:
                self._error = error
            finally:
                done.set()
                boundaries.parked.set()

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()
        assert boundaries.parked.wait(WAIT_SECONDS)
        if done.is_set():
            self.resume()

    def resume(self, *, is_killed: bool = False) -> None:
        """Let it go on from where it stopped, however long ago that was; or end it there."""
        assert self._thread is not None
        self._boundaries.is_killed = is_killed
        self._boundaries.released.set()
        self._thread.join(WAIT_SECONDS)
        assert not self._thread.is_alive()
        self._thread = None
        self._boundaries = Boundaries()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _cross(self) -> None:
        self._boundaries.cross(may_stall=False)

    def _cross_call(self, verb: str, *, is_before: bool) -> None:
        if is_before:
            self.crossings_before[verb] = self._boundaries.crossed + 1
        self._boundaries.cross(may_stall=True)


def _make_session_class(base: type[Session], cross: Callable[..., None]) -> type[Session]:
    class MortalSession(base):  # type: ignore[valid-type, misc]
        def commit(self) -> None:
            cross()
            super().commit()
            cross()

    return MortalSession


class _Watched:
    """The provisioner, with a boundary on either side of each call."""

    def __init__(self, provisioner: Provisioner, cross: Callable[..., None]) -> None:
        self._provisioner, self._cross = provisioner, cross

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self._provisioner, name)

        def call(*args: Any, **more: Any) -> Any:
            self._cross(name, is_before=True)
            answer = verb(*args, **more)
            self._cross(name, is_before=False)
            return answer

        return call
