"""The command line in process, against a real API process on SQLite."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from service.cli.config import KEY_VARIABLE, URL_VARIABLE
from service.cli.main import run
from service.context import Context, make_context
from service.db.session import session_scope
from service.keys.service import create_first_key
from service.settings import Settings
from tests.service.api.server import run_server

SPEC = "name: my-job\nrun: python train.py\nbudget: {cap_usd: '3.00'}\n"


@dataclass(frozen=True, kw_only=True)
class Service:
    url: str
    key: str
    context: Context


@dataclass(frozen=True, kw_only=True)
class Result:
    code: int
    out: str
    err: str


class Godwit(Protocol):
    def __call__(self, *arguments: str) -> Result: ...


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Service]:
    """One API process for the whole suite. Nothing listens at its broker's address."""
    folder = tmp_path_factory.mktemp("service")
    shutil.copy(sqlite_template, folder / "godwit.db")
    settings = Settings(data_dir=folder, allow_private_webhooks=True, broker_url="redis://127.0.0.1:1/0")
    context = make_context(settings)
    with session_scope(context.sessions) as session:
        key = create_first_key(session, now=context.clock())
    assert key is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GODWIT_ALLOW_PRIVATE_WEBHOOKS", "true")
        with run_server(settings) as server:
            yield Service(url=server.url, key=key, context=context)
    context.sessions.kw["bind"].dispose()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No account of the person who runs the tests: a configuration folder of the test's own."""
    for name in (URL_VARIABLE, KEY_VARIABLE, "GODWIT_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def godwit(alone: Path, capsys: pytest.CaptureFixture[str]) -> Godwit:
    """Not signed in."""
    del alone

    def call(*arguments: str) -> Result:
        capsys.readouterr()
        code = run(arguments)
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return Result(code=code, out=said.out, err=said.err)

    return call


@pytest.fixture
def signed_in(service: Service, godwit: Godwit, monkeypatch: pytest.MonkeyPatch) -> Godwit:
    """With the first admin key."""
    monkeypatch.setenv(URL_VARIABLE, service.url)
    monkeypatch.setenv(KEY_VARIABLE, service.key)
    return godwit


@pytest.fixture
def spec_file(tmp_path: Path) -> Callable[[str], str]:
    """Writes a spec and names the file."""

    def write(text: str = SPEC) -> str:
        path = tmp_path / "job.yaml"
        path.write_text(text)
        return str(path)

    return write


JsonObject = dict[str, Any]
