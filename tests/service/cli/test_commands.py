"""The commands against a real API: what they print, as JSON and for people, and the exit codes."""

from __future__ import annotations

import io
import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from service.cli.config import KEY_VARIABLE, URL_VARIABLE
from tests.service.cli.conftest import SPEC, Godwit, Service

WriteSpec = Callable[..., str]


def submit(godwit: Godwit, spec: str, *options: str) -> str:
    result = godwit("submit", spec, "--json", *options)
    assert result.code == 0, result.err
    return json.loads(result.out)["id"]


def test_submit_show_and_list(signed_in: Godwit, spec_file: WriteSpec) -> None:
    job_id = submit(signed_in, spec_file(), "--name", "listed-job", "--budget", "2.50")
    shown = json.loads(signed_in("show", job_id, "--json").out)
    assert (shown["name"], shown["status"], shown["budget_usd"]) == ("listed-job", "queued", "2.50")
    listed = json.loads(signed_in("ls", "--name", "listed-job", "--json").out)
    assert [job["id"] for job in listed] == [job_id]
    table = signed_in("ls", "--name", "listed-job").out
    assert "listed-job" in table
    assert "$2.50" in table
    assert job_id in signed_in("show", "listed-job").out


def test_wishes(signed_in: Godwit, spec_file: WriteSpec) -> None:
    job_id = submit(signed_in, spec_file())
    assert json.loads(signed_in("pause", job_id, "--json").out)["holds"] == ["user"]
    assert json.loads(signed_in("resume", job_id, "--json").out)["holds"] == []
    assert json.loads(signed_in("cancel", job_id, "--now", "--json").out)["stop_requested"] == "cancelled"
    assert signed_in("retry", job_id).code == 1
    assert signed_in("checkpoint", job_id).code == 1
    assert signed_in("drill", job_id, "--no-notice").code == 1


@pytest.mark.parametrize("command", ["events", "logs", "attempts", "checkpoints", "outputs"])
def test_what_became_of_a_job(signed_in: Godwit, spec_file: WriteSpec, command: str) -> None:
    job_id = submit(signed_in, spec_file())
    result = signed_in(command, job_id, "--json")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    assert [item["type"] for item in found] == ["job.queued"] if command == "events" else found == []
    assert signed_in(command, job_id).code == 0


def test_a_dry_run_writes_nothing(signed_in: Godwit, spec_file: WriteSpec) -> None:
    result = signed_in("submit", spec_file(), "--name", "dry", "--dry-run", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["is_admissible"] is False
    assert json.loads(signed_in("ls", "--name", "dry", "--json").out) == []
    assert "No offer" in signed_in("submit", spec_file(), "--dry-run").out


def test_a_workdir_travels(signed_in: Godwit, spec_file: WriteSpec, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print('hello')")
    job_id = submit(signed_in, spec_file(SPEC + "workdir: code\n"))
    assert len(json.loads(signed_in("show", job_id, "--json").out)["spec"]["workdir"]) == 64


def test_secrets_are_sent_and_never_shown(
    signed_in: Godwit, spec_file: WriteSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hunter2")
    result = signed_in("submit", spec_file(), "--secret", "HF_TOKEN", "--json")
    assert json.loads(result.out)["secret_names"] == ["HF_TOKEN"]
    assert "hunter2" not in result.out + result.err


def test_a_secret_that_nobody_knows_is_asked_of_nobody(signed_in: Godwit, spec_file: WriteSpec) -> None:
    result = signed_in("submit", spec_file(), "--secret", "NO_SUCH_SECRET")
    assert (result.code, "NO_SUCH_SECRET" in result.err) == (2, True)


def test_budgets(signed_in: Godwit, spec_file: WriteSpec) -> None:
    job_id = submit(signed_in, spec_file())
    assert json.loads(signed_in("budget", "top-up", job_id, "1.25", "--json").out)["cap_usd"] == "4.25"
    assert json.loads(signed_in("budget", "set", "9", job_id, "--json").out)["cap_usd"] == "9.00"
    assert "$9.00" in signed_in("budget", "show", job_id).out
    assert job_id in signed_in("budget", "list").out
    assert signed_in("budget", "show").code == 1
    assert json.loads(signed_in("budget", "set", "100", "--json").out)["job_id"] is None
    assert json.loads(signed_in("budget", "show", "--json").out)["cap_usd"] == "100.00"


@pytest.mark.parametrize("amount", ["NaN", "-1", "0", "abc", "inf", "1e999999999"])
def test_amounts_that_are_none(signed_in: Godwit, amount: str) -> None:
    assert signed_in("budget", "set", "--", amount).code == 2


def test_webhooks(signed_in: Godwit) -> None:
    made = json.loads(signed_in("webhooks", "add", "http://127.0.0.1:9/hook", "--event", "job.*", "--json").out)
    assert made["secret"].startswith("whsec_")
    assert made["id"] in signed_in("webhooks", "ls").out
    assert made["secret"] not in signed_in("webhooks", "ls", "--json").out
    assert signed_in("webhooks", "test", made["id"]).code == 0
    assert signed_in("webhooks", "deliveries", made["id"], "--json").code == 0
    assert signed_in("webhooks", "replay", made["id"], "dlv-none").code == 1
    assert signed_in("webhooks", "rm", made["id"], "--json").code == 0
    assert signed_in("webhooks", "add", "not a url").code == 2


def test_keys(signed_in: Godwit, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    made = json.loads(signed_in("keys", "create", "ci", "--role", "viewer", "--json").out)
    assert made["secret"] not in signed_in("keys", "ls", "--json").out
    with monkeypatch.context() as patch:
        patch.setenv(KEY_VARIABLE, made["secret"])
        assert signed_in("ls").code == 0
        assert signed_in("keys", "ls").code == 4
        assert json.loads(signed_in("whoami", "--json").out)["url"] == service.url
    assert signed_in("keys", "revoke", made["id"]).code == 0
    monkeypatch.setenv(KEY_VARIABLE, made["secret"])
    result = signed_in("ls")
    assert (result.code, made["secret"] in result.err) == (4, False)


def test_projects_offers_and_version(signed_in: Godwit) -> None:
    assert [item["name"] for item in json.loads(signed_in("projects", "--json").out)] == ["default"]
    assert json.loads(signed_in("offers", "--json").out) == []
    assert signed_in("offers", "--market", "nonsense").code == 2
    assert "version" in json.loads(signed_in("version", "--json").out)


def test_login_saves_the_account(godwit: Godwit, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(service.key + "\n"))
    result = godwit("login", service.url, "--json")
    assert result.code == 0, result.err
    path = Path(json.loads(result.out)["config"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert service.key not in result.out + result.err
    assert godwit("ls").code == 0


def test_a_saved_key_is_not_sent_elsewhere(godwit: Godwit, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(service.key))
    assert godwit("login", service.url).code == 0
    monkeypatch.setenv(URL_VARIABLE, "http://127.0.0.1:1")
    result = godwit("ls")
    assert (result.code, "no key is known" in result.err) == (4, True)


@pytest.mark.parametrize("key", ["", "wrong", "gdw_a_b", "gdw_\u00fc_x", "gdw_" + "x" * 2000])
def test_login_with_a_bad_key(godwit: Godwit, service: Service, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(key))
    result = godwit("login", service.url)
    assert result.code in (2, 4)
    assert not key or key not in result.err


@pytest.mark.parametrize(
    "url", ["", "nonsense", "ftp://x", "http://", "http://user:pw@host", "http://a b", "http://\u00fc"]
)
def test_login_with_a_bad_url(godwit: Godwit, url: str) -> None:
    assert godwit("login", "--", url).code == 2


def test_nobody_is_signed_in(godwit: Godwit) -> None:
    result = godwit("ls")
    assert result.code == 4
    assert "godwit up" in result.err


def test_the_service_is_away(signed_in: Godwit, spec_file: WriteSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, "http://127.0.0.1:1")
    for arguments in (["ls"], ["submit", spec_file()], ["logs", "job-x", "-f"]):
        result = signed_in(*arguments)
        assert result.code == 3
        assert "godwit up" in result.err
    error = json.loads(signed_in("ls", "--json").err)["error"]
    assert error["code"] == "away"


def test_what_answers_is_no_godwit(signed_in: Godwit, monkeypatch: pytest.MonkeyPatch, service: Service) -> None:
    monkeypatch.setenv(URL_VARIABLE, f"{service.url}/elsewhere")
    assert signed_in("ls").code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "job-doesnotexist"),
        ("show", "no-such-name"),
        ("show", "../../etc/passwd"),
        ("cancel", "job-\u2028\x07"),
        ("logs", "job-x", "-f"),
        ("download", "job-x", "a.txt"),
    ],
)
def test_jobs_that_are_not_there(signed_in: Godwit, arguments: tuple[str, ...]) -> None:
    result = signed_in(*arguments)
    assert result.code in (1, 2)
    assert result.err.strip()
    assert "\x07" not in result.err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("ls", "--nonsense"),
        ("ls", "--limit", "0"),
        ("ls", "--status", "nonsense"),
        ("submit",),
        ("submit", "/no/such/file"),
        ("up", "--port", "99999"),
        ("retry", "job-x", "--set", "nonsense"),
        ("demo", "--budget", "nonsense"),
        ("demo", "--budget", "-1"),
    ],
)
def test_bad_usage(signed_in: Godwit, arguments: tuple[str, ...]) -> None:
    assert signed_in(*arguments).code == 2


def test_a_bad_spec_is_told_as_json(signed_in: Godwit, spec_file: WriteSpec) -> None:
    result = signed_in("submit", spec_file("name: x\nrun: y\nbugdet: 1\n"), "--json")
    assert (result.code, result.out) == (2, "")
    (error,) = json.loads(result.err)["error"]["errors"]
    assert error["field"] == "bugdet"
    assert error["remedy"]


def test_downloads_stay_inside_the_folder(signed_in: Godwit, tmp_path: Path) -> None:
    for path in ("../x", "/etc/x", "a/../../x", ""):
        assert signed_in("download", "job-x", "--to", str(tmp_path), "--", path).code in (1, 2)


@pytest.mark.parametrize("content", ["{", '{"url": 3}', "\0", "[]"])
def test_a_damaged_configuration(godwit: Godwit, alone: Path, content: str) -> None:
    path = alone / "config" / "godwit" / "config.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert godwit("ls").code == 2


def test_every_command_has_help_with_examples(godwit: Godwit) -> None:
    for command in (
        "up",
        "down",
        "login",
        "demo",
        "submit",
        "ls",
        "show",
        "logs",
        "events",
        "retry",
        "drill",
        "offers",
    ):
        result = godwit(command, "--help")
        assert result.code == 0
        assert "Examples" in result.out
        assert "--json" in result.out
    assert "Exit codes" in godwit("--help").out
