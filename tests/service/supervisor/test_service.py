"""`godwit up` and `down` for real: every process of the embedded service, killed and found again."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from service.supervisor.children import STOP_ORDER
from service.supervisor.layout import Layout
from service.supervisor.processes import Identity, is_alive
from service.supervisor.state import Phase, State, read_state
from service.supervisor.supervise import is_ready

ROOT = Path(__file__).parents[3]
GODWIT = (sys.executable, "-c", "from service.cli.main import main; main()")


def godwit(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GODWIT_")}
    environment |= {
        "PYTHONPATH": str(ROOT),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "GODWIT_DATA_DIR": str(folder / "data"),
    }
    return subprocess.run([*GODWIT, *arguments], env=environment, capture_output=True, text=True, check=False)  # noqa: S603


def wait_for(question: Callable[[], object], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not question():
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.1)


def state_of(folder: Path) -> State:
    state = read_state(Layout(folder / "data"))
    assert state is not None
    return state


def identities(state: State) -> list[Identity]:
    return [state.supervisor, *(child.identity for child in state.children.values())]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A running service; the folder of its data and of the user's configuration."""
    folder = tmp_path_factory.mktemp("up")
    started = godwit(folder, "up", "--port", "0", "--json")
    assert started.returncode == 0, started.stderr
    yield folder
    godwit(folder, "down", "--force")


def test_up_signs_the_user_in(up: Path) -> None:
    assert json.loads(godwit(up, "whoami", "--json").stdout)["role"] == "admin"
    for path in (up / "config" / "godwit" / "config.json", up / "data" / "admin.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((up / "data").stat().st_mode) == 0o700


def test_the_offers_of_the_local_cloud_are_there(up: Path) -> None:
    wait_for(lambda: json.loads(godwit(up, "offers", "--json").stdout))


def test_up_twice_is_one_service(up: Path) -> None:
    before = state_of(up)
    again = godwit(up, "up", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout) == {
        "url": before.url,
        "data_dir": str(up / "data"),
        "is_new": False,
        "is_signed_in": True,
    }
    assert state_of(up) == before


@pytest.mark.parametrize("name", STOP_ORDER)
def test_a_killed_child_comes_back(up: Path, name: str) -> None:
    before = state_of(up).children[name].identity
    os.kill(before.pid, signal.SIGKILL)

    def is_back() -> bool:
        after = state_of(up).children[name].identity
        return after != before and is_alive(after)

    wait_for(is_back)
    wait_for(lambda: is_ready(state_of(up).url))


def test_no_request_is_refused_while_the_api_restarts(up: Path) -> None:
    state = state_of(up)
    os.kill(state.children["api"].identity.pid, signal.SIGKILL)
    assert httpx.get(f"{state.url}/livez", trust_env=False, timeout=60).status_code == 200


def test_what_a_killed_supervisor_left_is_cleared_away(up: Path) -> None:
    before = state_of(up)
    os.kill(before.supervisor.pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(before.supervisor))
    again = godwit(up, "up", "--port", before.url.rsplit(":", 1)[-1], "--json")
    assert again.returncode == 0, again.stderr
    assert not any(is_alive(identity) for identity in identities(before))
    after = state_of(up)
    assert (after.url, after.phase) == (before.url, Phase.READY)
    assert godwit(up, "whoami").returncode == 0


def processes_of(folder: Path) -> list[int]:
    """Whatever works in the folder or names it, nodes' ranks included."""
    found = psutil.process_iter(["cmdline", "cwd"])
    return [process.pid for process in found if str(folder) in f"{process.info['cmdline']} {process.info['cwd']}"]


def test_down_refuses_while_nodes_run_and_then_leaves_nothing(up: Path) -> None:
    before = state_of(up)
    spec = up / "job.yaml"
    spec.write_text("name: sleeper\nrun: sleep 617\nbudget: {cap_usd: '50'}\n")
    assert godwit(up, "submit", str(spec)).returncode == 0
    wait_for(
        lambda: any(
            "sleep 617" in " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])
        )
    )
    refused = godwit(up, "down")
    assert (refused.returncode, "1 node(s) are running" in refused.stderr) == (1, True)
    assert is_alive(before.supervisor)
    done = godwit(up, "down", "--force", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"was_running": True})
    assert not any(is_alive(identity) for identity in identities(before))
    assert processes_of(up) == []
    away = godwit(up, "ls")
    assert (away.returncode, "godwit up" in away.stderr) == (3, True)
    assert json.loads(godwit(up, "down", "--json").stdout) == {"was_running": False}


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = godwit(tmp_path, "up", "--port", port)
    assert done.returncode == 1
    assert f"127.0.0.1:{port}: the port is in use" in done.stderr
    assert "--port 0" in done.stderr


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = godwit(tmp_path, "up", "--data-dir", str(tmp_path / "file" / "below"))
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "GODWIT_GRANT": "soon", "GODWIT_DATA_DIR": str(tmp_path)}
    done = subprocess.run([*GODWIT, "up"], env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    assert (done.returncode, "GODWIT_GRANT" in done.stderr, "Traceback" in done.stderr) == (2, True, False)


def test_a_database_that_cannot_be_prepared_stops_the_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "godwit.db").write_text("this is no database, but long enough to be taken for one " * 10)
    done = godwit(tmp_path, "up", "--port", "0")
    assert (done.returncode, "could not be prepared" in done.stderr) == (1, True)
    assert json.loads(godwit(tmp_path, "down", "--json").stdout) == {"was_running": False}
