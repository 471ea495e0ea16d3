"""How ranks end: user errors with a remedy, failures in a gang, set-up, secrets and logs, with real processes."""

from __future__ import annotations

import io
import os
import signal
import sys
import tarfile

import pytest

from tests.training.node.conftest import WAIT_SECONDS, Bench, trainer, wait_until
from tests.training.node.service_double import TOKEN
from training.protocol.launch_spec import SECRET_NAMES_ENV
from training.protocol.manifest import digest
from training.protocol.messages import ExitKind


@pytest.mark.parametrize(
    ("command", "code", "remedy"),
    [
        ("echo about to fail >&2; exit 7", 7, "Read the last log lines"),
        ("no-such-command-anywhere", 127, "not found"),
        ("python -c 'import no_such_module_x'", 1, "pip install no_such_module_x"),
        ("python missing_train.py", 2, "missing_train.py"),
        ("kill -9 $$", -9, "out of memory"),
        ("echo 'torch.OutOfMemoryError: CUDA out of memory.'; exit 1", 1, "halve the micro-batch"),
    ],
)
def test_an_error_of_the_users_code_names_rank_lines_and_remedy(
    bench: Bench, command: str, code: int, remedy: str
) -> None:
    assert bench.run_to_end(bench.spec(run=command)) == 1
    report = bench.exit_report()
    assert (report.kind, report.code, report.rank) == (ExitKind.USER_ERROR, code, 0)
    assert report.remedy is not None
    assert remedy in report.remedy
    if "about to fail" in command:
        assert report.log_tail == ("about to fail",)


def test_one_ranks_failure_ends_the_others_and_is_the_one_reported(bench: Bench) -> None:
    command = "if [ $RANK = 1 ]; then sleep 0.3; echo boom >&2; exit 3; fi; while :; do sleep 0.05; done"
    assert bench.run_to_end(bench.spec(run=command, ranks_per_node=2)) == 1
    report = bench.exit_report()
    assert (report.rank, report.code, report.log_tail) == (1, 3, ("boom",))


def test_a_lost_peer_gives_way_to_the_rank_that_really_failed(bench: Bench) -> None:
    command = "if [ $RANK = 1 ]; then sleep 0.5; exit 3; fi; exit 79"
    assert bench.run_to_end(bench.spec(run=command, ranks_per_node=2)) == 1
    assert (bench.exit_report().rank, bench.exit_report().code) == (1, 3)


def test_infrastructure_is_no_error_of_the_users_code(bench: Bench) -> None:
    assert bench.run_to_end(bench.spec(run="exit 79")) == 79
    assert bench.exit_report().kind is ExitKind.INFRASTRUCTURE


def test_a_sigterm_from_outside_is_no_error_of_the_users_code(bench: Bench) -> None:
    agent = bench.start(bench.spec(run="echo $$; exec sleep 300"))
    pid = wait_until(lambda: next((int(text) for text in bench.service.texts if text.isdigit()), None), "the pid")
    os.kill(pid, signal.SIGTERM)
    assert agent.wait(WAIT_SECONDS) == 79


def test_a_plain_command_that_dies_of_the_drains_sigterm_is_drained(bench: Bench) -> None:
    agent = bench.start(bench.spec(run="sleep 300"))
    wait_until(lambda: bench.service.last and bench.service.last.phase == "running", "running")
    bench.service.command("drain")
    assert agent.wait(WAIT_SECONDS) == 75
    assert bench.exit_report().kind is ExitKind.DRAINED


LAZY_PARENT = (
    "import ctypes, subprocess, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); "
    "sys.exit(subprocess.Popen(sys.argv[1:]).wait())"
)
"""Adopts orphans as a container's first process does, and never reaps them."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems do not count the dead in a group")
def test_dead_orphans_that_nobody_reaps_do_not_keep_a_rank_alive(bench: Bench) -> None:
    bench.under = (sys.executable, "-c", LAZY_PARENT)
    assert bench.run_to_end(bench.spec(run="sleep 300 & exit 0")) == 0
    assert bench.exit_report().kind is ExitKind.COMPLETED


def test_a_failing_setup_is_a_user_error_with_its_log(bench: Bench) -> None:
    marker = bench.folder / "started"
    assert bench.run_to_end(bench.spec(setup="echo no such package; exit 4", run=f"touch {marker}")) == 1
    report = bench.exit_report()
    assert (report.kind, report.code, report.rank) == (ExitKind.USER_ERROR, 4, -1)
    assert "no such package" in report.log_tail
    assert "`setup:` ended with code 4" in (report.remedy or "")
    assert not marker.exists()


def test_secrets_reach_the_ranks_and_no_log(bench: Bench) -> None:
    secret = "s3cr3t-value-xyz"  # noqa: S105 - of this test
    command = (
        'echo "secret is $API_KEY"; echo "split \\033[1m$API_KEY\\033[0m" >&2;'
        ' printf "%s" "$API_KEY" | cksum; env | grep -c GODWIT_NODE_TOKEN; '
        'tr "\\0" "\\n" < /proc/$PPID/environ 2>/dev/null | grep GODWIT_NODE_TOKEN; exit 5'
    )
    spec = bench.spec(run=command, setup="echo setup $API_KEY")
    bench.run_to_end(spec, API_KEY=secret, **{SECRET_NAMES_ENV: "API_KEY"})
    whole = "\n".join(heartbeat.model_dump_json() for heartbeat in bench.service.heartbeats)
    files = "\n".join(path.read_text() for path in (bench.node / "logs").iterdir())
    files += "\n".join(path.read_text() for path in bench.bucket_folder.glob("jobs/job-1/logs/**/*.log"))
    for text in (whole, files, (bench.folder / "agent.err").read_text()):
        assert secret not in text
        assert TOKEN not in text
    assert {"secret is ***", "setup ***", "split ***"} <= set(bench.service.texts)
    assert "0" in bench.service.texts, "no token in a rank's environment"
    assert "GODWIT_NODE_TOKEN=***" not in bench.service.texts, "nor to be read in the agent's"


def test_a_log_flood_is_bounded_counted_and_keeps_its_end(bench: Bench) -> None:
    command = "python -c \"import sys; [print('x' * 99) for _ in range(300000)]; print('the end'); sys.exit(9)\""
    assert bench.run_to_end(bench.spec(run=command)) == 1
    dropped = sum(heartbeat.logs_dropped for heartbeat in bench.service.heartbeats)
    delivered = sum(line.rank == 0 for heartbeat in bench.service.heartbeats for line in heartbeat.logs)
    assert 0 <= dropped + delivered - 300_001 < 10, "every line, besides a few of the agent's own, is told or counted"
    assert dropped > 200_000
    assert bench.exit_report().log_tail[-1] == "the end"
    assert sum(path.stat().st_size for path in (bench.node / "logs").glob("0.*")) <= 17 * 1024 * 1024


def test_control_characters_never_leave_the_node(bench: Bench) -> None:
    command = (
        r"printf '\033[31mred\033[0m\033]0;title\007 \033[2Jcleared\000\010 \tok\n<b>html</b>\n10%%\r20%%\r\n'; exit 0"
    )
    assert bench.run_to_end(bench.spec(run=command)) == 0
    texts = [line.text for heartbeat in bench.service.heartbeats for line in heartbeat.logs if line.rank == 0]
    assert texts == ["red cleared \tok", "<b>html</b>", "10%", "20%"]


def pack(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as bundle:
        for info, content in members:
            info.size = len(content)
            bundle.addfile(info, io.BytesIO(content))
    return target.getvalue()


def test_a_workdir_runs_even_with_a_training_folder_of_its_own(bench: Bench) -> None:
    own = (tarfile.TarInfo("training/__init__.py"), b"raise SystemExit('shadowed')")
    bench.service.bundle = pack((tarfile.TarInfo("train.py"), b"print('from the bundle')"), own)
    spec = bench.spec(run="python train.py", workdir=digest(bench.service.bundle))
    assert bench.run_to_end(spec) == 0
    assert "from the bundle" in bench.service.texts


def test_a_bundle_that_escapes_is_refused(bench: Bench) -> None:
    bench.service.bundle = pack((tarfile.TarInfo("../escaped.py"), b"x"))
    assert bench.run_to_end(bench.spec(workdir=digest(bench.service.bundle))) == 1
    assert "outside the bundle" in (bench.exit_report().remedy or "")
    assert not (bench.node / "escaped.py").exists()


def test_a_bundle_with_another_digest_is_not_run(bench: Bench) -> None:
    bench.service.bundle = pack((tarfile.TarInfo("train.py"), b"print('x')"))
    assert bench.run_to_end(bench.spec(run="python train.py", workdir="0" * 64)) == 79
    assert bench.exit_report().kind is ExitKind.INFRASTRUCTURE


def test_an_output_link_out_of_the_node_is_not_kept(bench: Bench) -> None:
    command = "ln -s /etc/hostname $GODWIT_OUTPUT_DIR/link; ln -s / all; mkdir d; echo kept > d/kept.txt"
    assert bench.run_to_end(bench.spec(run=command, outputs=("d", "all/etc/hostname", "all/etc/*.conf"))) == 0
    folder = bench.bucket_folder / "jobs/job-1/outputs/1"
    assert [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()] == ["d/kept.txt"]


def test_ranks_get_the_whole_contract(bench: Bench) -> None:
    command = (
        'echo "$RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR $MASTER_PORT $GODWIT_JOB_ID $GODWIT_FENCE '
        '${GODWIT_RESUME_DIR-none} $GODWIT_CHECKPOINT_EVERY_SECONDS ${GODWIT_SECRET_NAMES-none} $PLAIN"; python -c '
        '"import sys; print(sys.prefix)"'
    )
    bench.run_to_end(bench.spec(run=command, fence=4, env={"PLAIN": "yes"}), GODWIT_SECRET_NAMES="")
    assert "0 0 1 127.0.0.1 29511 job-1 4 none 900 none yes" in bench.service.texts
    assert sys.prefix in bench.service.texts


def test_a_second_attempt_in_the_same_folder_starts_clean(bench: Bench) -> None:
    bench.run_to_end(bench.spec(run=trainer(last=4, every=2)))
    bench.run_to_end(bench.spec(run=trainer(last=1), fence=2))
    steps = [
        point.step for heartbeat in bench.service.heartbeats if heartbeat.fence == 2 for point in heartbeat.metrics
    ]
    assert steps == [1]
    assert {fence for _, fence in bench.service.registered} == {1}
