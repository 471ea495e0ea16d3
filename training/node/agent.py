"""The agent's loop: events in from its threads, decisions by `lifecycle.advance`, actions out.

The main thread alone starts ranks (Linux kills a child when the thread that started it ends) and alone holds the state.
"""

from __future__ import annotations

import queue
import signal
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from training.node import lifecycle
from training.node.bucket_access import BucketAccess
from training.node.children import Watchdog
from training.node.clock import boot_seconds, utc_now
from training.node.closing import Closing
from training.node.environment import base_environment, rank_environment
from training.node.exits import Verdict, agent_exit_code, find_remedy
from training.node.grant import Grant
from training.node.layout import Layout
from training.node.lifecycle import Action, Life, Stage, advance
from training.node.link import Link, Refused
from training.node.logs import AGENT_RANK, LogSink
from training.node.metrics import MetricsTail
from training.node.notices import NoticeReader
from training.node.preparation import Aborted, Preparation, PreparationImpossible
from training.node.pulse import Answered, Pulse
from training.node.ranks import Ranks, local_ranks
from training.node.sampling import HostSampler
from training.node.status import StatusBoard
from training.node.uploads import Uploader, UploadScope
from training.node.watch import NoticeWatch, Repeater
from training.protocol.launch_spec import LaunchSpec
from training.protocol.messages import Command, ExitKind, ExitReport, Notice, Phase

BOOT_SECONDS = 900.0
"""How long a node waits for its first answer, the default grant's length."""
TICK_SECONDS = 0.2
METRICS_POLL_SECONDS = 0.1
POWER_OFF_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What an agent is made of and does not make itself."""

    spec: LaunchSpec
    layout: Layout
    link: Link
    bucket: BucketAccess
    sink: LogSink
    watchdog: Watchdog
    readers: tuple[NoticeReader, ...]
    environment: dict[str, str]


class Agent:
    """One node of one attempt, from its first heartbeat to its power-off."""

    def __init__(self, parts: Parts) -> None:
        spec = parts.spec
        self._parts, self._spec, self._sink = parts, spec, parts.sink
        self._events: queue.SimpleQueue[lifecycle.Event | Answered] = queue.SimpleQueue()
        self._board = StatusBoard()
        self._metrics = MetricsTail(parts.layout.metrics_file, parts.sink.tell)
        self._grant = Grant()
        self._has_grant_ended = False
        self._aborted, self._stopped = threading.Event(), threading.Event()
        self._resume: Path | None = None
        self._environment = base_environment(parts.environment, spec, parts.layout)
        self._life = Life(
            bounds=lifecycle.Bounds(drain=spec.terms.drain.total_seconds(), boot=BOOT_SECONDS),
            started_at=boot_seconds(),
            ranks=frozenset(local_ranks(spec)),
        )
        self._ranks = Ranks(
            spec, cwd=parts.layout.work, sink=parts.sink, watchdog=parts.watchdog, tell_exit=self._rank_exited
        )
        self._pulse = Pulse(
            spec,
            parts.link,
            self._board,
            parts.sink,
            self._metrics,
            clock=boot_seconds,
            on_answer=self._events.put,
            on_refused=self._refused,
        )
        self._uploader = self._build_uploader()

    def run(self) -> int:
        """Until the node is powered off; the agent's exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._events.put(lifecycle.DrainAsked()))
        self._start_threads()
        while self._life.stage is not Stage.OFF:
            try:
                event = self._events.get(timeout=TICK_SECONDS)
            except queue.Empty:
                event = lifecycle.Tick()
            self._take(event)
            self._note_grant_end()
        return agent_exit_code(self._life.verdict)

    def _build_uploader(self) -> Uploader:
        scope = UploadScope(
            job_id=self._spec.job_id,
            attempt_id=self._spec.attempt_id,
            fence=self._spec.fence,
            node_rank=self._spec.node_rank,
            num_nodes=self._spec.num_nodes,
            world_size=self._spec.num_nodes * self._spec.ranks_per_node,
            folder=self._parts.layout.checkpoints,
            is_plain_command=self._spec.run is not None,
        )
        return Uploader(
            scope,
            self._parts.bucket,
            self._parts.link,
            on_registered=self._checkpoint_registered,
            on_refused=self._refused,
            tell=self._sink.tell,
        )

    def _start_threads(self) -> None:
        self._pulse.start()
        self._uploader.start()
        poll_seconds = self._spec.terms.notice_poll.total_seconds()
        for reader in self._parts.readers:
            watch = NoticeWatch(reader, poll_seconds, self._notice_seen)
            Repeater(type(reader).__name__, watch.look).start()
        Repeater("metrics", self._poll_metrics).start()
        if self._spec.node_rank == 0:
            Repeater("host", HostSampler(self._metrics.add_host_values).look).start()

    # What the threads tell.

    def _refused(self) -> None:
        self._events.put(lifecycle.RefusedByService())

    def _rank_exited(self, rank: int, code: int) -> None:
        self._sink.tell(f"rank {rank} ended with code {code}")
        self._events.put(lifecycle.RankExited(rank, code))

    def _checkpoint_registered(self, step: int) -> None:
        self._board.note_checkpoint(step)
        self._pulse.poke()

    def _notice_seen(self, notice: Notice) -> None:
        self._sink.tell(f"interruption notice: {notice.kind}")
        self._board.note_notice(notice)
        self._pulse.poke()
        if notice.kind == "preemption":
            self._events.put(lifecycle.DrainAsked())

    def _poll_metrics(self) -> float:
        now = utc_now()
        step = self._metrics.poll(now)
        if step is not None and self._board.note_step(step, now):
            self._pulse.poke()
        return METRICS_POLL_SECONDS

    # What the main thread decides and does.

    def _take(self, event: lifecycle.Event | Answered) -> None:
        if not isinstance(event, Answered):
            self._step(event)
            return
        self._grant = event.grant
        if event.grant.is_held:
            self._step(lifecycle.Granted())
        for command in event.commands:
            self._step(_COMMANDS[command]())
        if event.has_exit:
            self._step(lifecycle.Reported())

    def _note_grant_end(self) -> None:
        if self._grant.is_over(boot_seconds()) and not self._has_grant_ended:
            self._has_grant_ended = True
            self._sink.tell("the grant has ended: draining")
            self._step(lifecycle.DrainAsked())

    def _step(self, event: lifecycle.Event) -> None:
        was_draining = self._life.is_draining
        self._life, actions = advance(self._life, event, boot_seconds())
        if self._life.is_draining and not was_draining:
            self._board.enter(Phase.DRAINING)
            self._pulse.poke()
        for action in actions:
            self._do(action)

    def _do(self, action: Action) -> None:
        {
            Action.PREPARE: self._prepare,
            Action.ABORT_PREPARATION: self._aborted.set,
            Action.START_RANKS: self._start_ranks,
            Action.TERMINATE_RANKS: self._terminate_ranks,
            Action.KILL_RANKS: self._kill_ranks,
            Action.ASK_FOR_CHECKPOINT: self._ask_for_checkpoint,
            Action.CLOSE: self._close,
            Action.REPORT: self._report,
            Action.POWER_OFF: self._power_off,
        }[action]()

    def _prepare(self) -> None:
        threading.Thread(target=self._prepare_in_background, name="preparation", daemon=True).start()

    def _prepare_in_background(self) -> None:
        parts = self._parts
        preparation = Preparation(
            spec=self._spec,
            layout=parts.layout,
            environment=self._environment,
            link=parts.link,
            bucket=parts.bucket,
            board=self._board,
            sink=parts.sink,
            watchdog=parts.watchdog,
            aborted=self._aborted,
            poke=self._pulse.poke,
        )
        try:
            self._resume = preparation.prepare()
            self._events.put(lifecycle.Prepared())
        except Aborted:
            pass
        except Refused:
            self._refused()
        except PreparationImpossible as error:
            self._sink.tell(str(error))
            self._events.put(lifecycle.PreparationFailed(error.verdict))
        except Exception as error:  # whatever it is, the node must not stay up and wait for it
            self._sink.tell(f"preparation: {type(error).__name__}: {error}")
            reason = f"the node could not be prepared: {type(error).__name__}"
            self._events.put(lifecycle.PreparationFailed(Verdict(kind=ExitKind.INFRASTRUCTURE, reason=reason)))

    def _start_ranks(self) -> None:
        has_steps_to_come = self._spec.train is not None and self._spec.node_rank == 0
        self._board.enter(Phase.STARTING_RANKS if has_steps_to_come else Phase.RUNNING)
        spec, layout, resume = self._spec, self._parts.layout, self._resume
        self._ranks.start(lambda rank: rank_environment(self._environment, spec, layout, rank, resume))
        self._pulse.poke()

    def _terminate_ranks(self) -> None:
        self._uploader.hurry()
        self._ranks.terminate()

    def _kill_ranks(self) -> None:
        self._ranks.kill()

    def _ask_for_checkpoint(self) -> None:
        if self._spec.node_rank == 0 and not self._ranks.ask_for_checkpoint():
            self._sink.tell("a checkpoint was asked for, and the command does not handle SIGUSR1")

    def _close(self) -> None:
        verdict, life = self._life.verdict, self._life
        timeout_seconds = max(0.0, (life.close_by or boot_seconds()) - boot_seconds())
        closing = Closing(
            spec=self._spec,
            layout=self._parts.layout,
            bucket=self._parts.bucket,
            uploader=self._uploader,
            stopped=self._stopped,
            tell=self._sink.tell,
        )
        has_outputs = verdict is not None and verdict.kind is ExitKind.COMPLETED

        def close() -> None:
            is_complete = closing.close(timeout_seconds, has_saves=not life.is_stopped, has_outputs=has_outputs)
            self._events.put(lifecycle.Closed(is_complete))

        threading.Thread(target=close, name="closing", daemon=True).start()

    def _report(self) -> None:
        if self._life.verdict is not None:
            self._poll_metrics()
            self._board.note_exit(build_report(self._life.verdict, self._sink))
            self._pulse.poke()

    def _power_off(self) -> None:
        self._stopped.set()
        self._aborted.set()
        self._pulse.stop()
        self._uploader.stop()
        if self._spec.power_off:
            try:
                subprocess.run(  # noqa: S603 - the service's own argv, no shell
                    self._spec.power_off, check=False, timeout=POWER_OFF_SECONDS, stdin=subprocess.DEVNULL
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                self._sink.tell(f"power-off failed: {type(error).__name__}")


_COMMANDS = {
    Command.CHECKPOINT: lifecycle.CheckpointAsked,
    Command.DRAIN: lifecycle.DrainAsked,
    Command.STOP: lifecycle.StopAsked,
}


def build_report(verdict: Verdict, sink: LogSink) -> ExitReport:
    """The exit report, with the deciding rank's last lines and, for an error of the user's code, a remedy."""
    tail = sink.tail(AGENT_RANK if verdict.rank is None else verdict.rank)
    is_user_error = verdict.kind is ExitKind.USER_ERROR
    remedy = find_remedy(verdict.code, tail) if is_user_error else None
    if verdict.reason is not None:
        remedy = verdict.reason if remedy is None else f"{verdict.reason}. {remedy}"
    return ExitReport(kind=verdict.kind, code=verdict.code, rank=verdict.rank, log_tail=tail, remedy=remedy)
