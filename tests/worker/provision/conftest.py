"""One daemon for the tests that leave it as it was, and one of a test's own for those that do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.worker.provision.clusters import Daemon, make_profile
from worker.provision.local.profile import Profile

DRY_ZONE_TRACE = "seconds,zone,instances\n0,local-a-1,64\n0,local-b-1,0\n"


@pytest.fixture(scope="package")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A market with much capacity in local-a-1 and none in local-b-1."""
    folder = tmp_path_factory.mktemp("cloud")
    (folder / "trace.csv").write_text(DRY_ZONE_TRACE)
    daemon = Daemon(folder, make_profile(supply={"kind": "traced", "file": str(folder / "trace.csv")}))
    daemon.start()
    yield daemon
    assert daemon.stop() == 0


@pytest.fixture
def start_daemon(tmp_path: Path) -> Iterator[Callable[[Profile], Daemon]]:
    started: list[Daemon] = []

    def start(profile: Profile) -> Daemon:
        daemon = Daemon(tmp_path / f"cloud-{len(started)}", profile)
        started.append(daemon)
        daemon.start()
        return daemon

    yield start
    for daemon in started:
        daemon.stop()
