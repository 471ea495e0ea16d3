# ruff: noqa: S603  (the commands are our own)
"""How a rank is started, by the agent and by hand, and the contract for loops of one's own."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
import yaml

from tests.training.ranks import CONTEXT, join, wait_until
from training.node.ranks import RUNTIME
from training.protocol.job_spec import JobSpec

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "examples" / "plain_loop"
SHADOW = "raise SystemExit('the wrong training was imported')\n"

LOOP = """
import sys, time
from pathlib import Path
from training import callback
callback.start()
folder = callback.resume_dir()
step = int((folder / "step").read_text()) if folder else 0
while step < 1_000_000:
    step += 1
    time.sleep(0.001)
    callback.log(step, **{"loss/train": 1.0 / step, "odd": float("nan")})
    if callback.should_save(step):
        with callback.save_dir(step) as folder:
            (folder / "step").write_text(str(step))
    if callback.should_stop():
        callback.exit_drained()
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "GODWIT_CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
        "GODWIT_METRICS_FILE": str(tmp_path / "metrics.jsonl"),
        "GODWIT_OUTPUT_DIR": str(tmp_path / "outputs"),
        "GODWIT_CHECKPOINT_EVERY_STEPS": "1000000",
        "PYTHONPATH": str(REPOSITORY),
    }


def wait_for_lines(path: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while process.poll() is None and (not path.exists() or path.read_text().count("\n") < count):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def steps_in(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in folder.iterdir())


def test_a_training_folder_of_the_users_does_not_hide_the_runtime(tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "__init__.py").write_text(SHADOW)
    (tmp_path / "training" / "cli.py").write_text(SHADOW)
    command = [sys.executable, "-P", str(RUNTIME), "recipes", "--json"]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert {row["name"]: row["parameters"] for row in json.loads(done.stdout)}["gpt_1b"] == 759_905_280


def test_recipes_and_errors_need_no_torch() -> None:
    """So the service can list recipes, and a faulty spec is told at once."""
    code = "import sys; from training.cli import main; main(['recipes']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "gpt_1b" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text", "word"),
    [
        (["run"], "", "GODWIT_TRAIN_SPEC_FILE"),
        (["run", "--spec", "spec.yaml"], "", "--dir"),
        (["run", "--spec", "missing.yaml", "--dir", "job"], "", "missing.yaml"),
        (["run", "--spec", "spec.yaml", "--dir", "job"], "a: [", "YAML"),
        (["run", "--spec", "spec.yaml", "--dir", "job"], "- 1", "mapping"),
        (["run", "--spec", "spec.yaml", "--dir", "job"], "train: {recipe: nano_gpt, steps: 0}", "steps"),
        (["run", "--spec", "spec.yaml", "--dir", "job"], "x: " + "y" * (1 << 20), "larger"),
    ],
)
def test_errors_of_the_users_are_one_line_and_code_2(
    tmp_path: Path, arguments: list[str], text: str, word: str
) -> None:
    (tmp_path / "spec.yaml").write_text(text)
    command = [sys.executable, "-P", str(RUNTIME), *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert word in done.stderr


def run_by_hand(spec: str, folder: str) -> None:
    from training.cli import main

    raise SystemExit(main(["run", "--spec", spec, "--dir", folder]))


def test_by_hand_a_job_spec_runs_and_resumes_from_its_folder(tmp_path: Path, corpus: Path) -> None:
    model = {"d_model": 16, "num_layers": 1, "num_heads": 2, "context_length": 16, "vocab_size": 300}
    train = {"recipe": "nano_gpt", "steps": 4, "model": model, "data": {"source": str(corpus)}}
    spec, folder = tmp_path / "job.yaml", tmp_path / "run"

    def run() -> int | None:
        process = CONTEXT.Process(target=run_by_hand, args=(str(spec), str(folder)), daemon=True)
        process.start()
        return join([process])[0]

    for steps in (4, 6):
        job = {"name": "x", "train": train | {"steps": steps}, "checkpoint": {"every_steps": 2}}
        spec.write_text(yaml.safe_dump(job))
        assert run() == 0
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss/train" in line] == [1, 2, 3, 4, 5, 6]
    assert (folder / "outputs" / "final.json").exists()
    for path in (folder / "checkpoints").glob("*/model.pt"):
        path.unlink()
    assert run() == 80


def test_the_callback_saves_on_request_resumes_and_drains(tmp_path: Path, environ: dict[str, str]) -> None:
    checkpoints, metrics = tmp_path / "checkpoints", tmp_path / "metrics.jsonl"
    process = subprocess.Popen([sys.executable, "-c", LOOP], env=environ, cwd=tmp_path)
    wait_for_lines(metrics, 5, process)
    process.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + 60
    while not any(checkpoints.glob("[0-9]*")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    wait_for_lines(metrics, metrics.read_text().count("\n") + 2, process)  # or both requests meet in one save
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 75
    first, last = steps_in(checkpoints)
    assert first < last == json.loads(metrics.read_text().splitlines()[-1])["step"]
    assert json.loads(metrics.read_text().splitlines()[-1])["odd"] is None

    lines = metrics.read_text().count("\n")
    environ["GODWIT_RESUME_DIR"] = str(checkpoints / str(last))
    process = subprocess.Popen([sys.executable, "-c", LOOP], env=environ, cwd=tmp_path)
    wait_for_lines(metrics, lines + 1, process)
    process.kill()
    process.wait()
    assert json.loads(metrics.read_text().splitlines()[lines])["step"] == last + 1


def test_the_callback_refuses_a_promised_checkpoint_that_is_not_there(tmp_path: Path, environ: dict[str, str]) -> None:
    environ["GODWIT_RESUME_DIR"] = str(tmp_path / "nowhere")
    done = subprocess.run([sys.executable, "-c", LOOP], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 80
    assert "GODWIT_RESUME_DIR" in done.stderr


def test_a_failed_save_leaves_no_checkpoint(tmp_path: Path, environ: dict[str, str]) -> None:
    code = (
        "from training import callback\nwith callback.save_dir(3) as f:\n (f / 'a').write_text('a')\n raise OSError\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, check=False)
    assert done.returncode == 1
    assert list((tmp_path / "checkpoints").iterdir()) == []


def run_example(environ: dict[str, str], folder: str) -> None:
    """In its own process, as `python train.py`."""
    os.environ.update(environ)
    os.chdir(folder)
    runpy.run_path(str(EXAMPLE / "train.py"), run_name="__main__")


def start_example(environ: dict[str, str], folder: Path) -> ForkServerProcess:
    process = CONTEXT.Process(target=run_example, args=(environ, str(folder)), daemon=True)
    process.start()
    return process


def test_the_plain_loop_drains_resumes_and_finishes(tmp_path: Path, environ: dict[str, str]) -> None:
    content = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    assert JobSpec.model_validate(content | {"workdir": None}).run == "python train.py"
    metrics = tmp_path / "metrics.jsonl"
    process = start_example(environ | {"STEPS": "1000000"}, tmp_path)
    wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") > 3, [process])
    process.terminate()
    assert join([process]) == [75]
    (step,) = steps_in(tmp_path / "checkpoints")
    lines = metrics.read_text().splitlines()
    assert json.loads(lines[-1])["step"] == step

    environ |= {"STEPS": str(step + 2), "GODWIT_RESUME_DIR": str(tmp_path / "checkpoints" / str(step))}
    assert join([start_example(environ, tmp_path)]) == [0]
    resumed = [json.loads(line)["step"] for line in metrics.read_text().splitlines()[len(lines) :]]
    assert resumed == [step + 1, step + 2]
    assert json.loads((tmp_path / "outputs" / "result.json").read_text())["steps"] == step + 2

    environ["GODWIT_RESUME_DIR"] = str(tmp_path / "nowhere")
    assert join([start_example(environ, tmp_path)]) == [80]
