"""`python -m training`: run a rank, or list the recipes. Heavy modules are loaded by the command that needs them."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from pydantic import ValidationError

from training.errors import RunError, UserError
from training.protocol import rank_contract
from training.protocol.job_spec import CheckpointPolicy
from training.protocol.train_spec import TrainSpec
from training.rank_env import RankEnv, rank_env_below, read_rank_env
from training.recipes import RECIPES, describe_validation_error
from training.signals import Signals

MAX_SPEC_BYTES = 1024 * 1024
DEFAULT_EVERY = timedelta(minutes=15)

log = logging.getLogger("godwit.training")


def main(arguments: list[str] | None = None) -> int:
    """The exit code: see the rank contract; 2 is an error of the user's, told in one line."""
    options = parse_arguments(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    try:
        return options.command(options)
    except RunError as error:
        sys.stdout.flush()
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training", description="Godwit's training runtime.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="train; without options, as a rank started by the node agent")
    run.add_argument("--spec", type=Path, help="a train spec or a job spec, YAML or JSON")
    run.add_argument("--dir", type=Path, help="where checkpoints, metrics and outputs go; resumes from there")
    run.set_defaults(command=run_command)
    recipes = commands.add_parser("recipes", help="list the recipes")
    recipes.add_argument("--json", action="store_true", help="as JSON")
    recipes.set_defaults(command=recipes_command)
    return parser.parse_args(arguments)


def run_command(options: argparse.Namespace) -> int:
    signals = Signals()
    signals.install()
    if (options.spec is None) != (options.dir is None):
        raise UserError("--spec and --dir go together")
    if options.spec is not None:
        spec, policy = read_spec(options.spec)
        env = find_env_by_hand(options.dir, policy)
    else:
        path = os.environ.get(rank_contract.TRAIN_SPEC_FILE)
        if not path:
            raise UserError(f"{rank_contract.TRAIN_SPEC_FILE} is not set; to run by hand, use --spec FILE --dir DIR")
        spec, _ = read_spec(Path(path))
        env = read_rank_env(os.environ)
        if env.every_steps is None and env.every_seconds is None:
            env = replace(env, every_seconds=DEFAULT_EVERY.total_seconds())

    # Threads that spin at each barrier lose most of their speed (8 times less was seen) when any other process wants a
    # core; sleeping ones do not. OpenMP reads this once, when torch loads it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from training.run import run_rank

    return int(run_rank(spec, env, signals))


def read_spec(path: Path) -> tuple[TrainSpec, CheckpointPolicy]:
    """A train spec, or the `train` and `checkpoint` parts of a job spec. Raises UserError that names the field."""
    import yaml

    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_SPEC_BYTES + 1)
        if len(text) > MAX_SPEC_BYTES:
            raise UserError(f"{path} is larger than {MAX_SPEC_BYTES:,} bytes")
        content = json.loads(text) if text.lstrip()[:1] == b"{" else yaml.safe_load(text)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise UserError(f"{path} is neither YAML nor JSON: {str(error).partition(chr(10))[0]}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no mapping of fields")
    try:
        if "train" in content:
            policy = CheckpointPolicy.model_validate(content.get("checkpoint", {}))
            return TrainSpec.model_validate(content["train"]), policy
        return TrainSpec.model_validate(content), CheckpointPolicy()
    except ValidationError as error:
        raise UserError(f"{path.name}: {describe_validation_error(error)}") from error


def find_env_by_hand(folder: Path, policy: CheckpointPolicy) -> RankEnv:
    """Everything below `folder`, from its newest checkpoint that verifies; a damaged newer one is told of.

    Raises NoUsableCheckpointError when there are checkpoints and none verifies.
    """
    from training.checkpoint.store import find_newest_verified
    from training.errors import NoUsableCheckpointError

    resume_dir, faults = find_newest_verified(folder / "checkpoints")
    for fault in faults.values():
        log.warning("not usable: %s", fault)
    if faults and resume_dir is None:
        raise NoUsableCheckpointError(f"no checkpoint in {folder / 'checkpoints'} can be used; move them to start anew")
    every = policy.every or (None if policy.every_steps else DEFAULT_EVERY)
    return rank_env_below(
        folder,
        resume_dir=resume_dir,
        every_steps=policy.every_steps,
        every_seconds=every.total_seconds() if every else None,
    )


def recipes_command(options: argparse.Namespace) -> int:
    from training.model.count import count_parameters

    rows = [
        {"name": name, "parameters": count_parameters(recipe.model), **recipe.model_dump(mode="json")}
        for name, recipe in ((name, build()) for name, build in RECIPES.items())
    ]
    if options.json:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
    else:
        for row in rows:
            sys.stdout.write(f"{row['name']:<10} {row['parameters'] / 1e6:>8.1f} M  {row['description']}\n")
    return 0
