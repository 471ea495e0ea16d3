"""Jobs of any command: bundle, set-up, environment, secrets, outputs, and errors of the user's own code."""

from __future__ import annotations

import json
from pathlib import Path

from sqlalchemy import select

from service.db.models import Event, LogLineRow
from service.db.session import make_session_factory
from tests.e2e.processes import find_inside, list_command_lines
from tests.e2e.receiver import listen_to
from tests.e2e.runs import check_promises, list_node_processes, submit, submit_spec, upload_folder
from tests.e2e.stack import Stack

SECRET = "correct-horse-battery-staple"  # noqa: S105 - no secret of anybody's
MAIN = """
import os, sys, time
import training  # the user's own folder beside this file
sys.stdout.write(f"mine: {training.WORD} {os.environ['COLOUR']} {open('made-by-setup').read()}")
sys.stdout.write(f"a careless print of {os.environ['API_TOKEN']}\\n")
assert os.environ["API_TOKEN"] == "".join(["correct-horse", "-battery", "-staple"])
os.makedirs("figures")
open("figures/loss.txt", "w").write("3.14")
open("scratch.txt", "w").write("not kept")
open(os.path.join(os.environ["GODWIT_OUTPUT_DIR"], "model.bin"), "wb").write(bytes(range(256)))
time.sleep(2)
"""


def test_a_command_with_bundle_setup_env_secrets_and_outputs(stack: Stack, tmp_path: Path) -> None:
    """A folder named `training` in the bundle is the user's for the command and hides nothing of ours from the agent."""
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "__init__.py").write_text('WORD = "my own package"')
    (tmp_path / "main.py").write_text(MAIN)
    run = submit_spec(
        stack,
        {
            "name": "any-command",
            "run": "python3 main.py",
            "setup": 'printf "set up as $COLOUR\\n" > made-by-setup; echo "$API_TOKEN" | wc -c',
            "workdir": upload_folder(stack, tmp_path),
            "env": {"COLOUR": "teal"},
            "secrets": {"API_TOKEN": SECRET},
            "outputs": ["figures/*"],
            "budget": {"cap_usd": "20.00"},
        },
    )
    run.reach("running", "succeeded")
    assert not any(SECRET in line for line in list_command_lines(find_inside(stack.folder)))
    run.reach("succeeded")

    texts = [line.text for line in stack.api.logs(run.id, tail=200)]
    assert "mine: my own package teal set up as teal" in texts
    assert any(text.startswith("a careless print of") for text in texts)
    kept = {output.path: stack.api.output_text(run.id, output.path) for output in stack.api.outputs(run.id)}
    assert kept["figures/loss.txt"] == "3.14"
    assert set(kept) == {"figures/loss.txt", "model.bin"}
    target = tmp_path / "model.bin"
    stack.api.download_output(run.id, "model.bin", target)
    assert target.read_bytes() == bytes(range(256))
    assert_secret_is_nowhere(stack, run.id)
    check_promises(stack)


def assert_secret_is_nowhere(stack: Stack, job_id: str) -> None:
    """Not in answers of the API, events, log lines, files of any process or node, the bucket or the database."""
    job = stack.api.job(job_id)
    assert (job.model_extra or {})["secret_names"] == ["API_TOKEN"]
    assert SECRET not in job.model_dump_json()
    with make_session_factory(stack.engine)() as session:
        assert all(SECRET not in text for text in session.scalars(select(LogLineRow.text)))
        assert all(SECRET not in json.dumps(data) for data in session.scalars(select(Event.data)))
    files = [path for path in stack.folder.rglob("*") if path.is_file()]
    assert files
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []


def test_an_error_of_the_users_code_ends_the_job_at_once(stack: Stack) -> None:
    """One attempt, never relaunched; rank, last lines and remedy in the job and in one signed `training_error`."""
    with listen_to(stack, ["training_error"]) as receiver:
        command = "echo before; python3 -c 'import no_such_thing' || exit 3"
        run = submit_spec(stack, {"name": "broken", "run": command, "budget": {"cap_usd": "20.00"}})
        job = run.reach("failed")
        told = receiver.wait_for(1)[0]

    assert job.end_reason == "user_error"
    assert job.error is not None
    assert (job.error.rank, job.error.exit_code) == (0, 3)
    assert "ModuleNotFoundError: No module named 'no_such_thing'" in job.error.log_tail
    assert job.error.remedy is not None
    assert "pip install no_such_thing" in job.error.remedy
    assert run.fences() == [1]
    assert list_node_processes(run) == []
    assert told["type"] == "training_error"
    assert (told["data"]["job_id"], told["data"]["rank"], told["data"]["exit_code"]) == (run.id, 0, 3)
    assert told["data"]["remedy"] == job.error.remedy
    assert told["data"]["log_tail"] == list(job.error.log_tail)
    check_promises(stack)


def test_an_error_after_steps_keeps_the_checkpoint_and_the_traceback(stack: Stack) -> None:
    run = submit(stack, steps=40, env={"FAIL_AT": "25"})
    job = run.reach("failed")
    assert (job.end_reason, job.checkpoint_step) == ("user_error", 20)
    assert job.error is not None
    assert "ValueError: the data is bad at step 25" in job.error.log_tail
    assert run.fences() == [1]
    assert (job.fault_count, job.preemption_count) == (0, 0)
    check_promises(stack)


def test_a_set_up_that_fails_is_the_users_error_too(stack: Stack) -> None:
    run = submit(stack, setup="echo cannot compile >&2; exit 7")
    job = run.reach("failed")
    assert job.end_reason == "user_error"
    assert job.error is not None
    assert "cannot compile" in job.error.log_tail
    assert run.fences() == [1]
    assert run.journal() == []
    check_promises(stack)
