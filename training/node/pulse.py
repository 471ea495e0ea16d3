"""The pulse: a heartbeat every interval and at once on news, and the grant that its answers renew."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from training.node.grant import Grant
from training.node.link import Conflict, Link, LinkDown, Refused, Rejected
from training.node.logs import LogSink
from training.node.metrics import MetricsTail
from training.node.status import NodeStatus, StatusBoard
from training.protocol.launch_spec import LaunchSpec
from training.protocol.messages import Command, Heartbeat, LogLine, MetricPoint, Phase

MAX_RETRY_SECONDS = 10.0
FIRST_RETRY_SECONDS = 0.25
MAX_BACKLOG_MESSAGES = 8
"""Heartbeats that may empty the buffers before the exit report goes out, for nothing is heard after it."""


@dataclass(frozen=True, kw_only=True)
class Answered:
    """An accepted heartbeat: the grant as renewed by it, and what the service wants."""

    grant: Grant
    commands: tuple[Command, ...]
    has_exit: bool


@dataclass(frozen=True, kw_only=True)
class _Payload:
    status: NodeStatus
    has_exit: bool
    metrics: tuple[MetricPoint, ...]
    logs: tuple[LogLine, ...]
    dropped: int


class Pulse(threading.Thread):
    """`on_answer(Answered)` and `on_refused()` are called from this thread. `clock` is suspend-aware seconds."""

    def __init__(
        self,
        spec: LaunchSpec,
        link: Link,
        board: StatusBoard,
        sink: LogSink,
        metrics: MetricsTail,
        *,
        clock: Callable[[], float],
        on_answer: Callable[[Answered], None],
        on_refused: Callable[[], None],
    ) -> None:
        super().__init__(name="pulse", daemon=True)
        self._spec, self._link, self._board = spec, link, board
        self._sink, self._metrics, self._clock = sink, metrics, clock
        self._on_answer, self._on_refused = on_answer, on_refused
        self._grant = Grant()
        self._seq = 0
        self._failures = 0
        self._backlog_messages = 0
        self._wake = threading.Event()
        self._is_stopped = False

    def run(self) -> None:
        while not self._is_stopped:
            self._wake.clear()
            self._beat()
            self._wake.wait(self._delay())

    def poke(self) -> None:
        """There is news: send it now."""
        self._wake.set()

    def stop(self) -> None:
        self._is_stopped = True
        self._wake.set()

    def _beat(self) -> None:
        payload = self._take_payload()
        heartbeat = self._compose(payload)
        self._grant = self._grant.note_sent(self._seq, self._clock())
        try:
            reply = self._link.send_heartbeat(heartbeat)
        except LinkDown as error:
            self._give_back(payload, error)
        except (Rejected, Conflict) as error:
            # Perhaps one of these lines or points is what the service will not take: better lost than the grant.
            self._failures += 1
            self._sink.tell(f"a heartbeat was rejected, its logs and metrics are lost: {error}")
        except Refused:
            self._is_stopped = True
            self._on_refused()
        else:
            self._failures = 0
            self._grant = self._grant.renew(reply.answers_seq, reply.grant_seconds)
            has_exit = heartbeat.exit is not None
            self._on_answer(Answered(grant=self._grant, commands=reply.commands, has_exit=has_exit))

    def _take_payload(self) -> _Payload:
        status = self._board.read()
        metrics, (logs, dropped) = self._metrics.take(), self._sink.take()
        has_exit = status.exit is not None and not self._is_emptying()
        if has_exit:
            dropped += self._sink.discard_waiting()
        return _Payload(status=status, metrics=metrics, logs=logs, dropped=dropped, has_exit=has_exit)

    def _compose(self, payload: _Payload) -> Heartbeat:
        self._seq += 1
        status, has_exit = payload.status, payload.has_exit
        return Heartbeat(
            attempt_id=self._spec.attempt_id,
            fence=self._spec.fence,
            node_rank=self._spec.node_rank,
            seq=self._seq,
            phase=status.phase if has_exit or status.exit is None else Phase.DRAINING,
            step=status.step,
            resumed_from_step=status.resumed_from_step,
            first_step_at=status.first_step_at,
            metrics=payload.metrics,
            logs=payload.logs,
            logs_dropped=payload.dropped,
            last_checkpoint_step=status.last_checkpoint_step,
            corrupt_checkpoints=status.corrupt_checkpoints,
            notice=status.notice,
            exit=status.exit if has_exit else None,
        )

    def _is_emptying(self) -> bool:
        """Whether the exit report waits for one more message of logs and metrics."""
        has_backlog = self._sink.has_waiting or self._metrics.has_waiting
        if not has_backlog or self._backlog_messages >= MAX_BACKLOG_MESSAGES:
            return False
        self._backlog_messages += 1
        self._wake.set()
        return True

    def _give_back(self, payload: _Payload, error: LinkDown) -> None:
        self._failures += 1
        self._metrics.give_back(payload.metrics)
        self._sink.give_back(payload.logs, payload.dropped)
        if self._failures in (1, 10, 100):
            self._sink.tell(f"the service is out of reach ({error}); the ranks run on within the grant")

    def _delay(self) -> float:
        jitter = random.uniform(0.85, 1.15)  # noqa: S311 - spreads load, guards nothing
        interval = self._spec.terms.heartbeat.total_seconds()
        if not self._failures:
            return interval * jitter
        retry = FIRST_RETRY_SECONDS * 2 ** min(self._failures - 1, 10)
        return min(retry, max(interval, 1.0), MAX_RETRY_SECONDS) * jitter
