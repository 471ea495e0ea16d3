"""A node's life: grant, drain, fence, commands, and the death of the agent, with real processes."""

from __future__ import annotations

import os
import signal

import pytest

from tests.training.node.conftest import WAIT_SECONDS, Bench, is_alive, trainer, wait_until
from training.protocol.launch_spec import TOKEN_ENV
from training.protocol.messages import ExitKind, Phase


def test_a_completed_job_keeps_its_checkpoints_outputs_and_log(bench: Bench) -> None:
    spec = bench.spec(run=trainer(last=6, every=3), outputs=("*.md",), setup="echo '# notes' > notes.md")
    assert bench.run_to_end(spec) == 0
    report = bench.exit_report()
    assert (report.kind, report.code) == (ExitKind.COMPLETED, 0)
    assert (6, 1) in bench.committed()
    assert (6, 1) in bench.service.registered
    outputs = bench.bucket_folder / "jobs/job-1/outputs/1"
    assert (outputs / "result.txt").read_text() == "6 steps"
    assert (outputs / "notes.md").read_text() == "# notes\n"
    assert "== node ==" in (bench.bucket_folder / "jobs/job-1/logs/1/0.log").read_text()


def test_heartbeats_tell_phases_steps_and_metrics_in_order(bench: Bench) -> None:
    bench.run_to_end(bench.spec(run=trainer(last=6), setup="true"))
    heartbeats = bench.service.heartbeats
    assert heartbeats[0].phase is Phase.BOOTING
    assert heartbeats[-1].phase is Phase.FINISHED
    seqs = [heartbeat.seq for heartbeat in heartbeats]
    assert seqs == sorted(set(seqs))
    steps = [point.step for heartbeat in heartbeats for point in heartbeat.metrics]
    assert steps == [1, 2, 3, 4, 5, 6]
    last = heartbeats[-1]
    assert (last.step, last.resumed_from_step) == (6, 0)
    assert last.first_step_at is not None


def test_ranks_start_only_after_an_accepted_reply(bench: Bench) -> None:
    bench.service.status = 503
    marker = bench.folder / "started"
    agent = bench.start(bench.spec(run=f"touch {marker}"))
    wait_until(lambda: "out of reach" in (bench.folder / "agent.err").read_text(), "a refused first heartbeat")
    assert not marker.exists()
    bench.service.status = 200
    assert agent.wait(WAIT_SECONDS) == 0
    assert marker.exists()


def test_an_absence_shorter_than_the_grant_changes_nothing(bench: Bench) -> None:
    bench.start(bench.spec())
    bench.wait_for_step(5)
    bench.service.status = 503
    metrics = bench.node / "metrics.jsonl"
    before = len(metrics.read_text().splitlines())
    wait_until(lambda: len(metrics.read_text().splitlines()) > before + 60, "steps without the service")
    bench.service.status = 200
    bench.wait_for_step(before + 60)
    assert not any(heartbeat.phase is Phase.DRAINING for heartbeat in bench.service.heartbeats)
    steps = [point.step for heartbeat in bench.service.heartbeats for point in heartbeat.metrics]
    assert steps == list(range(1, len(steps) + 1)), "the points of the absence arrive late, and all of them"


def test_the_grants_end_drains_to_the_bucket_and_powers_off(bench: Bench) -> None:
    off = bench.folder / "off"
    bench.service.grant_seconds = 2.0
    agent = bench.start(bench.spec(terms={"drain": 4}, power_off=("touch", str(off))))
    bench.wait_for_step(3)
    bench.service.status = 503
    assert agent.wait(WAIT_SECONDS) == 75
    assert len(bench.committed()) == 1, "the checkpoint is in the bucket though nobody could be told"
    assert bench.service.registered == {}
    assert off.exists()


def test_a_fenced_node_stops_at_once_and_commits_nothing(bench: Bench) -> None:
    agent = bench.start(bench.spec())
    bench.wait_for_step(3)
    bench.service.is_fenced = True
    assert agent.wait(WAIT_SECONDS) == 3
    assert bench.committed() == []
    assert bench.service.registrations == []


def test_a_revoked_token_stops_the_node(bench: Bench) -> None:
    agent = bench.start(bench.spec())
    bench.wait_for_step(3)
    bench.service.status = 401
    assert agent.wait(WAIT_SECONDS) == 3
    assert bench.committed() == []


def test_sigkill_of_the_agent_kills_every_process_of_the_ranks(bench: Bench) -> None:
    # A shell between agent and trainer, a child in the background: none may live on.
    pids = bench.folder / "pids"
    command = f"sleep 300 & echo $! > {pids}; echo $$ >> {pids}; {trainer().removeprefix('exec ')}; true"
    agent = bench.start(bench.spec(run=command, ranks_per_node=1))
    bench.wait_for_step(2)
    found = [int(line) for line in pids.read_text().split()]
    children = [pid for pid in _processes_of_session(agent.pid) if pid != agent.pid]
    assert len(children) >= 4, "background child, shell, trainer, watchdog"
    agent.kill()
    agent.wait()
    for pid in {*found, *children}:
        wait_until(lambda pid=pid: not is_alive(pid), f"the end of {pid}", 5)


def _processes_of_session(session_id: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - names alone
        if name.isdigit():
            try:
                if os.getsid(int(name)) == session_id:
                    found.append(int(name))
            except ProcessLookupError:
                continue
    return found


@pytest.mark.parametrize("source", ["notice", "command", "sigterm"])
def test_a_drain_loses_no_step(bench: Bench, source: str) -> None:
    agent = bench.start(bench.spec())
    bench.wait_for_step(5)
    if source == "notice":
        bench.imds.instance_action = {"action": "terminate", "time": "2031-01-01T00:02:00Z"}
    elif source == "command":
        bench.service.command("drain")
    else:
        agent.send_signal(signal.SIGTERM)
    assert agent.wait(WAIT_SECONDS) == 75
    report = bench.exit_report()
    assert (report.kind, report.code) == (ExitKind.DRAINED, 75)
    last_step = len((bench.node / "metrics.jsonl").read_text().splitlines())
    assert (last_step, 1) in bench.service.registered, "what was computed last is what was registered"
    assert bench.service.last is not None
    assert bench.service.last.last_checkpoint_step == last_step


def test_a_notice_is_told_before_the_drain_ends(bench: Bench) -> None:
    slow = "trap 'sleep 1; exit 75' TERM; echo ready; while :; do sleep 0.05; done"
    agent = bench.start(bench.spec(run=slow))
    wait_until(lambda: "ready" in bench.service.texts, "the trap")
    bench.imds.instance_action = {"action": "terminate", "time": "2031-01-01T00:02:00Z"}
    agent.wait(WAIT_SECONDS)
    told = next(heartbeat for heartbeat in bench.service.heartbeats if heartbeat.notice is not None)
    assert told.exit is None
    assert told.notice is not None
    assert told.notice.kind == "preemption"
    assert told.notice.terminate_at is not None
    assert told.notice.terminate_at.year == 2031


def test_a_rebalance_recommendation_is_told_and_does_not_drain(bench: Bench) -> None:
    bench.start(bench.spec())
    bench.wait_for_step(2)
    bench.imds.rebalance = {"noticeTime": "2031-01-01T00:00:00Z"}
    told = wait_until(
        lambda: next((heartbeat for heartbeat in tuple(bench.service.heartbeats) if heartbeat.notice), None), "a notice"
    )
    assert told.notice.kind == "rebalance"
    bench.wait_for_step((told.step or 0) + 20)
    assert bench.service.last is not None
    assert bench.service.last.phase is Phase.RUNNING


def test_stop_kills_without_a_checkpoint(bench: Bench) -> None:
    agent = bench.start(bench.spec())
    bench.wait_for_step(3)
    bench.service.command("stop")
    assert agent.wait(WAIT_SECONDS) == 75
    assert bench.exit_report().kind is ExitKind.DRAINED
    assert bench.committed() == []


def test_a_checkpoint_on_command_goes_on_training(bench: Bench) -> None:
    bench.start(bench.spec())
    bench.wait_for_step(3)
    bench.service.command("checkpoint")
    wait_until(lambda: bench.service.registrations, "a registration")
    step = bench.service.registrations[0].step
    bench.wait_for_step(step + 5)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="only Linux tells which signals a process handles")  # noqa: PTH112
def test_a_checkpoint_on_command_does_not_kill_a_command_that_does_not_handle_it(bench: Bench) -> None:
    agent = bench.start(bench.spec(run="sleep 300"))
    wait_until(lambda: bench.service.last and bench.service.last.phase is Phase.RUNNING, "running")
    bench.service.command("checkpoint")
    wait_until(lambda: any("SIGUSR1" in text for text in bench.service.texts), "the agent's word")
    assert agent.poll() is None


def test_a_drain_before_the_ranks_start_reports_and_leaves(bench: Bench) -> None:
    marker = bench.folder / "started"
    agent = bench.start(bench.spec(setup="sleep 300", run=f"touch {marker}"))
    wait_until(lambda: bench.service.last and bench.service.last.phase is Phase.SETTING_UP, "set-up")
    bench.service.command("drain")
    assert agent.wait(WAIT_SECONDS) == 75
    assert bench.exit_report().kind is ExitKind.DRAINED
    assert not marker.exists()


def test_a_rank_that_ignores_the_drain_is_killed_within_its_bound(bench: Bench) -> None:
    stubborn = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    agent = bench.start(bench.spec(run=stubborn, terms={"drain": 5}))
    wait_until(lambda: "ready" in bench.service.texts, "the trap")
    bench.service.command("drain")
    assert agent.wait(WAIT_SECONDS) == 75
    assert bench.exit_report().kind is ExitKind.DRAINED
    err = (bench.folder / "agent.err").read_text()
    assert "rank 0 ended with code -9" in err, "time is left for what it had saved before"


def test_a_shell_that_dies_first_does_not_cut_its_programs_save_short(bench: Bench) -> None:
    # The signal reaches the shell and the trainer; the shell dies of it at once and the trainer still saves.
    saver = bench.folder / "saver.py"
    saver.write_text(
        "import os, pathlib, signal, sys, time\n"
        "folder = pathlib.Path(os.environ['GODWIT_CHECKPOINT_DIR'])\n"
        "def end(*_):\n"
        "    time.sleep(1)\n"
        "    (folder / '.t').mkdir(); (folder / '.t' / 'x').write_text('x'); (folder / '.t').rename(folder / '7')\n"
        "    sys.exit(75)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('ready', flush=True)\n"
        "os.close(1); os.close(2)\n"  # nobody may take the pipes' end for the trainer's
        "while True: time.sleep(0.05)\n"
    )
    agent = bench.start(bench.spec(run=f"python {saver}; true"))
    wait_until(lambda: "ready" in bench.service.texts, "the saver")
    bench.service.command("drain")
    assert agent.wait(WAIT_SECONDS) == 75
    assert (7, 1) in bench.service.registered


def test_a_wrong_token_starts_nothing(bench: Bench) -> None:
    marker = bench.folder / "started"
    assert bench.run_to_end(bench.spec(run=f"touch {marker}"), **{TOKEN_ENV: "of-another-attempt"}) == 3
    assert not marker.exists()


@pytest.mark.parametrize(
    ("changes", "environment", "message"),
    [({}, {"GODWIT_NODE_TOKEN": ""}, "GODWIT_NODE_TOKEN is not set"), ({"fence": 0}, {}, "fence: ")],
)
def test_a_bad_launch_is_refused_by_name(bench: Bench, changes: dict, environment: dict, message: str) -> None:
    spec = bench.spec().model_copy(update=changes)
    assert bench.run_to_end(spec, **environment) == 64
    assert message in (bench.folder / "agent.err").read_text()
