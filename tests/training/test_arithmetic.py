# ruff: noqa: S311  (no secrets here)
"""The parts of a step: schedule, optimiser, clipping, accumulation, sharing of batches, random state, skipped steps."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from training.checkpoint.config import RunConfig, split_batch
from training.checkpoint.state import Progress
from training.checkpoint.store import verify
from training.data.batches import Batches
from training.data.prepare import prepare_data
from training.errors import UserError
from training.model.gpt import Gpt
from training.optimizer import AdamW, FlatParameters, clip_gradients
from training.protocol.train_spec import AdamWSpec, ModelSpec, ScheduleSpec, TrainSpec
from training.rank_env import rank_env_below
from training.recipes import resolve_recipe
from training.rng import capture_rng, restore_rng, seed_rank
from training.run import build_config, build_parts
from training.schedule import learning_rate
from training.signals import Signals
from training.trainer import Trainer
from training.world import World

CPU = torch.device("cpu")
SHAPE = ModelSpec(d_model=32, num_layers=2, num_heads=2, context_length=16, vocab_size=300)


def rates(schedule: ScheduleSpec, steps: int) -> list[float]:
    return [learning_rate(step, peak=1.0, schedule=schedule, steps=steps) for step in range(steps)]


def test_cosine_warms_up_linearly_and_ends_at_its_floor() -> None:
    values = rates(ScheduleSpec(warmup_steps=10, min_lr_ratio=0.1), 110)
    assert values[:10] == pytest.approx([0.1 * step for step in range(1, 11)])
    assert values[10] == 1.0
    assert values[-1] == pytest.approx(0.1)
    assert all(later < earlier for earlier, later in itertools.pairwise(values[10:]))
    middle = values[10 + 99 // 2 : 12 + 99 // 2]
    assert sum(middle) / 2 == pytest.approx(0.55, abs=1e-3)


@pytest.mark.parametrize("schedule", [ScheduleSpec(warmup_steps=50), ScheduleSpec(name="constant", warmup_steps=50)])
def test_a_run_shorter_than_its_warm_up_has_a_rate_at_every_step(schedule: ScheduleSpec) -> None:
    assert all(0 < rate <= 1 for steps in (1, 2, 50, 51, 52) for rate in rates(schedule, steps))


def test_a_constant_rate_stays_at_its_peak_after_warm_up() -> None:
    assert rates(ScheduleSpec(name="constant", warmup_steps=2), 5) == [0.5, 1.0, 1.0, 1.0, 1.0]


def fill_gradients(model: torch.nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        gradient = torch.randn(parameter.shape, generator=generator)
        if parameter.grad is None:
            parameter.grad = gradient
        else:
            parameter.grad.copy_(gradient)


def test_the_optimiser_equals_torchs_with_decay_on_matrices_alone() -> None:
    spec = AdamWSpec(learning_rate=0.01, betas=(0.9, 0.95), weight_decay=0.3)
    ours = Gpt(SHAPE.model_copy(update={"norm": "layer_norm"}))
    theirs = Gpt(ours.spec)
    theirs.load_state_dict(ours.state_dict())
    groups = [
        {"params": [weight for weight in theirs.parameters() if weight.ndim >= 2], "weight_decay": 0.3},
        {"params": [weight for weight in theirs.parameters() if weight.ndim < 2], "weight_decay": 0.0},
    ]
    reference = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.95), eps=spec.epsilon)
    optimizer = AdamW(FlatParameters(ours), spec)
    for seed in range(4):
        fill_gradients(ours, seed)
        fill_gradients(theirs, seed)
        optimizer.update(0.01)
        reference.step()
    for name, weight in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], weight, rtol=1e-5, atol=1e-7)


def test_clipping_bounds_the_norm_over_all_weights_and_tells_the_norm_before() -> None:
    gradients = torch.tensor([3.0, 4.0])
    assert clip_gradients(gradients, 1.0).item() == pytest.approx(5.0)
    assert gradients.tolist() == pytest.approx([0.6, 0.8], rel=1e-5)
    assert clip_gradients(gradients, 10.0).item() == pytest.approx(1.0)
    assert gradients.tolist() == pytest.approx([0.6, 0.8], rel=1e-5)
    big = torch.tensor([30.0])
    clip_gradients(big, None)
    assert big.item() == 30.0


def make_batches(rank: int, size: int) -> Batches:
    tokens = np.arange(4000, dtype=np.uint16)
    return Batches(tokens, tokens, length=8, seed=1, world=World(rank=rank, size=size, device=CPU))


@pytest.mark.parametrize(("world_size", "micro", "accumulation"), [(1, 12, 1), (2, 3, 2), (3, 2, 2), (4, 3, 1)])
def test_ranks_share_a_steps_samples_whatever_their_number(world_size: int, micro: int, accumulation: int) -> None:
    whole = {row[0].item() for inputs, _ in make_batches(0, 1).micro_batches(36, 12, 1) for row in inputs}
    shares = [
        row[0].item()
        for rank in range(world_size)
        for inputs, targets in make_batches(rank, world_size).micro_batches(36, micro, accumulation)
        for row in inputs
        if torch.equal(inputs[:, 1:], targets[:, :-1])
    ]
    assert len(shares) == 12
    assert set(shares) == whole
    validation = [
        row[0].item()
        for rank in range(world_size)
        for inputs, _ in make_batches(rank, world_size).validation_batches(micro, 6)
        for row in inputs
    ]
    assert len(set(validation)) == len(validation) == micro * 6


@pytest.fixture
def build_trainer(corpus: Path, tmp_path: Path) -> Iterator[Callable[..., Trainer]]:
    """Build trainers whose spec differs by keyword; their files are closed afterwards."""
    trainers: list[Trainer] = []

    def build(**changes: object) -> Trainer:
        trainers.append(assemble(corpus, tmp_path, **changes))
        return trainers[-1]

    yield build
    for trainer in trainers:
        assert trainer.parts.metrics is not None
        trainer.parts.metrics.close()


def assemble(corpus: Path, folder: Path, **changes: object) -> Trainer:
    spec = TrainSpec.model_validate(
        {
            "recipe": "nano_gpt",
            "model": SHAPE.model_dump(),
            "data": {"source": str(corpus)},
            "schedule": {},
            "steps": 8,
            "eval_batches": 2,
        }
        | changes
    )
    recipe, world = resolve_recipe(spec), World(rank=0, size=1, device=CPU)
    data = prepare_data(spec.data, vocab_size=300, cache_dir=folder / "cache", tokenizer=None)
    config = build_config(spec, recipe.model, data, world, None, 1)
    env = rank_env_below(folder, resume_dir=None, every_steps=None, every_seconds=None)
    return Trainer(build_parts(env, world, recipe, config, data, Signals()), Progress())


def test_accumulated_micro_batches_equal_one_large_batch(build_trainer: Callable[..., Trainer]) -> None:
    large = build_trainer(micro_batch_size=8, accumulation=1)
    small = build_trainer(micro_batch_size=2, accumulation=4)
    loss_of_large, loss_of_small = large._compute_gradients(), small._compute_gradients()
    assert loss_of_small.item() == pytest.approx(loss_of_large.item(), rel=1e-6)
    torch.testing.assert_close(small.parts.flat.gradients, large.parts.flat.gradients, rtol=1e-4, atol=1e-6)


def test_a_step_that_is_not_finite_is_skipped_and_counted(build_trainer: Callable[..., Trainer]) -> None:
    trainer = build_trainer(steps=1)
    weight = trainer.parts.model.tokens.weight
    with torch.no_grad():
        weight[:, 0] = math.inf
    before = trainer.parts.flat.values.clone()
    trainer.train()
    assert trainer.progress.skipped_steps == trainer.progress.step == 1
    assert trainer.progress.samples == trainer.parts.config.global_batch
    assert trainer.parts.optimizer.updates.item() == 0
    assert verify(trainer.parts.env.checkpoint_dir / "1").val_loss is None
    assert torch.equal(trainer.parts.flat.values, before)


def test_the_first_loss_is_near_that_of_a_guess(build_trainer: Callable[..., Trainer]) -> None:
    trainer = build_trainer()
    assert trainer._compute_gradients().item() == pytest.approx(math.log(300), rel=0.05)
    assert all(weight.grad is not None and weight.grad.any() for weight in trainer.parts.model.parameters())


def test_random_state_comes_back_whole() -> None:
    seed_rank(1, 0, 0)
    random.gauss(0, 1)
    np.random.standard_normal()
    state = capture_rng(CPU)

    def draw() -> tuple[float, float, float, float]:
        return random.gauss(0, 1), random.random(), float(np.random.standard_normal()), torch.rand(1).item()

    first = draw()
    assert draw() != first
    restore_rng(state, CPU)
    assert draw() == first
    with pytest.raises(ValueError, match="random state"):
        restore_rng(state[:-1], CPU)


def test_ranks_draw_differently() -> None:
    drawn = set()
    for rank, step in itertools.product(range(3), range(3)):
        seed_rank(0, rank, step)
        drawn.add((random.random(), torch.rand(1).item()))
    assert len(drawn) == 9


def saved_config(world_size: int, micro: int, accumulation: int) -> RunConfig:
    spec = TrainSpec(recipe="nano_gpt", steps=1, micro_batch_size=micro, accumulation=accumulation)
    return RunConfig(
        spec=spec,
        model=SHAPE,
        data="0" * 64,
        tokenizer="0" * 64,
        world_size=world_size,
        micro_batch_size=micro,
        accumulation=accumulation,
        num_threads=1,
        torch_version="2",
    )


@pytest.mark.parametrize(
    ("world_size", "expected"), [(1, (8, 4)), (2, (8, 2)), (4, (8, 1)), (8, (4, 1)), (16, (2, 1)), (32, (1, 1))]
)
def test_the_global_batch_is_kept_on_another_number_of_ranks(world_size: int, expected: tuple[int, int]) -> None:
    saved = saved_config(4, 8, 1)
    assert split_batch(saved.spec, world_size, saved) == expected


def test_a_batch_changed_on_purpose_is_taken_and_an_uneven_share_refused() -> None:
    saved = saved_config(4, 8, 1)
    changed = TrainSpec(recipe="nano_gpt", steps=1, micro_batch_size=6)
    assert split_batch(changed, 3, saved) == (6, 1)
    with pytest.raises(UserError, match="cannot be shared evenly by 3"):
        split_batch(saved.spec, 3, saved)
