"""The supervisor's parts: processes by start time, bounded logs, the environment, the layout."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from service.settings import Settings
from service.supervisor.environment import child_environment
from service.supervisor.layout import Layout
from service.supervisor.logs import open_log, rotate_log, tail
from service.supervisor.processes import Identity, identify, is_alive, stop_group
from service.supervisor.state import Phase, State, read_state, try_lock, write_state


def test_a_reused_pid_is_not_ours() -> None:
    own = identify(os.getpid())
    assert own is not None
    assert is_alive(own)
    assert not is_alive(Identity(pid=own.pid, started_at=own.started_at - 1))


def test_a_process_that_ignores_a_polite_stop_is_killed_with_its_children() -> None:
    code = (
        "import signal, subprocess, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, start_new_session=True, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        child = identify(int(process.stdout.readline()))
        parent = identify(process.pid)
        assert child is not None
        assert parent is not None
        stop_group(parent, grace_seconds=0.2)
        assert not is_alive(parent)
        process.wait()
    pause = threading.Event()
    assert any(not is_alive(child) or pause.wait(0.05) for _ in range(200)), "SIGKILL takes its moment, not ten seconds"


def test_a_log_is_cut_while_its_writer_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "child.log"
    with open_log(path) as writer:
        writer.write(b"x" * 2000)
        writer.flush()
        assert rotate_log(path, max_bytes=1000)
        writer.write(b"next\n")
    assert path.read_bytes() == b"next\n"
    assert (tmp_path / "child.log.1").stat().st_size == 2000
    assert not rotate_log(path, max_bytes=1000)
    assert tail(path) == "next"
    assert tail(tmp_path / "none.log") == ""


def test_what_the_user_set_rules_over_the_laptop_defaults(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    made = child_environment({"GODWIT_GRANT": "PT5M", "GODWIT_DATA_DIR": "/elsewhere"}, layout, url="http://x:1")
    assert made["GODWIT_GRANT"] == "PT5M"
    assert made["GODWIT_DATA_DIR"] == str(tmp_path)
    assert made["GODWIT_SERVICE_URL"] == "http://x:1"


def test_the_laptop_defaults_are_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in child_environment({}, Layout(tmp_path), url="http://127.0.0.1:1").items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert settings.grant.total_seconds() == 60
    assert settings.allow_private_webhooks


def test_a_long_folder_still_has_a_socket(tmp_path: Path) -> None:
    assert Layout(Path("/short")).broker_socket == Path("/short/valkey.sock")
    deep = Layout(tmp_path / ("x" * 120))
    assert len(str(deep.broker_socket)) <= 100
    assert deep.broker_socket != Layout(tmp_path / ("y" * 120)).broker_socket


def test_the_state_is_read_back_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.create()
    assert read_state(layout) is None
    state = State(supervisor=Identity(pid=1, started_at=2.5), url="http://x", phase=Phase.READY)
    write_state(layout, state)
    assert read_state(layout) == state
    layout.state_file.write_text("{")
    assert read_state(layout) is None
    assert layout.data_dir.stat().st_mode & 0o077 == 0 or tmp_path == layout.data_dir


def test_one_lock_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first = try_lock(path)
    assert first is not None
    assert try_lock(path) is None
    os.close(first)
    again = try_lock(path)
    assert again is not None
    os.close(again)
