"""One rank's run, put together from its spec and environment, and brought to an end."""

from __future__ import annotations

import logging

import torch

from training.checkpoint.config import RunConfig, check_architecture, check_data, split_batch
from training.checkpoint.state import Checkpoint, Progress, open_checkpoint, restore
from training.checkpoint.store import UnusableCheckpointError
from training.checkpoint.writer import CheckpointWriter
from training.data.batches import Batches
from training.data.prepare import PreparedData, prepare_data
from training.data.tokenizer import Tokenizer
from training.errors import NoUsableCheckpointError, UserError
from training.metrics import MetricsWriter
from training.model.gpt import Gpt
from training.optimizer import AdamW, FlatParameters
from training.outputs import write_outputs
from training.protocol.rank_contract import ExitCode
from training.protocol.train_spec import ModelSpec, TrainSpec
from training.rank_env import RankEnv, count_cores
from training.recipes import Recipe, resolve_recipe
from training.rng import restore_rng, seed_rank
from training.signals import Signals
from training.trainer import RunParts, Trainer
from training.world import World, join_world

log = logging.getLogger("godwit.training")


def run_rank(spec: TrainSpec, env: RankEnv, signals: Signals) -> ExitCode:
    """Train from the checkpoint, or from step 0 where none was promised, until done or asked to stop.

    Raises RunError with the exit code that tells why the run cannot go on.
    """
    recipe = resolve_recipe(spec)
    check_plan(spec, env)
    checkpoint = find_checkpoint(env, recipe.model)
    num_threads = choose_threads(env, checkpoint)
    torch.set_num_threads(num_threads)
    world = join_world(env)
    use_exact_kernels(world)
    tokenizer = Tokenizer(checkpoint.tokenizer) if checkpoint else None
    data = prepare_data(spec.data, vocab_size=recipe.model.vocab_size, cache_dir=env.cache_dir, tokenizer=tokenizer)
    check_same_data(world, data, checkpoint)
    config = build_config(spec, recipe.model, data, world, checkpoint, num_threads)
    parts = build_parts(env, world, recipe, config, data, signals)
    progress = start_progress(parts, checkpoint)
    describe_start(parts, progress)
    trainer = Trainer(parts, progress)
    is_complete = trainer.train()
    if is_complete and world.is_first:
        write_outputs(parts, progress, data.tokenizer)
    if parts.metrics is not None:
        parts.metrics.close()
    world.leave()
    return ExitCode.COMPLETED if is_complete else ExitCode.DRAINED


def check_plan(spec: TrainSpec, env: RankEnv) -> None:
    """Raises UserError when the plan does not fit the number of ranks."""
    if spec.plan == "single" and env.world_size > 1:
        raise UserError(f"plan: 'single' is one rank, but there are {env.world_size}; choose 'auto' or 'ddp'")


def find_checkpoint(env: RankEnv, model: ModelSpec) -> Checkpoint | None:
    """The promised checkpoint, verified, of the same architecture; None when none was promised.

    Raises NoUsableCheckpointError, or UserError for another architecture.
    """
    if env.resume_dir is None:
        return None
    try:
        checkpoint = open_checkpoint(env.resume_dir)
    except UnusableCheckpointError as error:
        raise NoUsableCheckpointError(f"cannot resume: {error}") from error
    check_architecture(checkpoint.config.model, model)
    return checkpoint


def choose_threads(env: RankEnv, checkpoint: Checkpoint | None) -> int:
    """This node's cores shared by its ranks; on resume the checkpoint's number, since sums round by it, if cores suffice."""
    share = max(1, count_cores() // env.ranks_per_node)
    if checkpoint is None or env.world_size != checkpoint.config.world_size:
        return share
    if checkpoint.config.num_threads > share and env.rank == 0:
        log.warning(
            "fewer cores than before (%d threads a rank, then %d): on CPU, losses may differ in the last bits",
            share,
            checkpoint.config.num_threads,
        )
    return min(share, checkpoint.config.num_threads)


def use_exact_kernels(world: World) -> None:
    """Prefer GPU kernels that add in a fixed order, so that a resumed run repeats the same bits."""
    if world.device.type == "cuda":
        torch.use_deterministic_algorithms(True, warn_only=True)


def check_same_data(world: World, data: PreparedData, checkpoint: Checkpoint | None) -> None:
    """Raises UserError when the ranks' data differ from one another or from the checkpoint's."""
    digest = torch.tensor(list(bytes.fromhex(data.digest)), dtype=torch.int64, device=world.device)
    if not (world.gather(digest) == digest).all():
        raise UserError(
            "data: the nodes hold different data; give every node the same files (with `stdlib`, one Python)"
        )
    if checkpoint is not None:
        check_data(checkpoint.config.data, data.digest)


def build_config(
    spec: TrainSpec,
    model: ModelSpec,
    data: PreparedData,
    world: World,
    checkpoint: Checkpoint | None,
    num_threads: int,
) -> RunConfig:
    micro_batch_size, accumulation = split_batch(spec, world.size, checkpoint.config if checkpoint else None)
    return RunConfig(
        spec=spec,
        model=model,
        data=data.digest,
        tokenizer=data.tokenizer.digest,
        world_size=world.size,
        micro_batch_size=micro_batch_size,
        accumulation=accumulation,
        num_threads=num_threads,
        torch_version=torch.__version__,
    )


def build_parts(
    env: RankEnv, world: World, recipe: Recipe, config: RunConfig, data: PreparedData, signals: Signals
) -> RunParts:
    """Every rank draws the same first weights from the seed."""
    spec = config.spec
    torch.manual_seed(spec.seed)
    model = Gpt(config.model).to(world.device)
    flat = FlatParameters(model)
    return RunParts(
        env=env,
        world=world,
        recipe=recipe,
        config=config,
        tokenizer=data.tokenizer.definition,
        model=model,
        flat=flat,
        optimizer=AdamW(flat, recipe.optimizer),
        batches=Batches(data.train, data.validation, length=config.model.context_length, seed=spec.seed, world=world),
        signals=signals,
        writer=CheckpointWriter(env.checkpoint_dir) if world.is_first else None,
        metrics=MetricsWriter(env.metrics_file) if world.is_first else None,
    )


def start_progress(parts: RunParts, checkpoint: Checkpoint | None) -> Progress:
    """Load the checkpoint into the parts, or seed the generators of a new run."""
    rank, seed = parts.world.rank, parts.config.spec.seed
    if checkpoint is None:
        seed_rank(seed, rank, 0)
        return Progress()
    try:
        restored = restore(checkpoint, parts.flat, parts.optimizer)
        if parts.world.size == checkpoint.config.world_size:
            restore_rng(restored.rng[rank], parts.world.device)
        else:
            seed_rank(seed, rank, restored.progress.step)
    except (UnusableCheckpointError, ValueError) as error:
        raise NoUsableCheckpointError(f"cannot resume: {error}") from error
    return restored.progress


def describe_start(parts: RunParts, progress: Progress) -> None:
    if parts.world.is_first:
        tokens = parts.config.global_batch * parts.config.model.context_length
        log.info(
            "%s: %s parameters, %d rank(s) on %s, %d tokens a step, from step %d of %d",
            parts.config.spec.recipe,
            f"{sum(parameter.numel() for parameter in parts.model.parameters()):,}",
            parts.world.size,
            parts.world.device.type,
            tokens,
            progress.step,
            parts.config.spec.steps,
        )
