"""The training loop, which only loops: gradients, agreement among ranks, update, validation, metrics, saves.

Everything that a resumed run needs to repeat the next step bit by bit is in the weights, the moments, Progress and the
random state; the loop keeps nothing else that matters.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import torch

from training.checkpoint.config import RunConfig
from training.checkpoint.state import Progress, Snapshot, take_snapshot
from training.checkpoint.writer import CheckpointWriter
from training.data.batches import Batches
from training.errors import InfrastructureError
from training.metrics import MetricsWriter
from training.model.gpt import Gpt
from training.optimizer import AdamW, FlatParameters, clip_gradients
from training.protocol.train_spec import Precision
from training.rank_env import RankEnv
from training.recipes import Recipe
from training.rng import capture_rng
from training.schedule import learning_rate
from training.signals import Signals
from training.world import World


@dataclass(frozen=True, kw_only=True)
class RunParts:
    """One rank's run, put together. `writer` and `metrics` are rank 0's alone."""

    env: RankEnv
    world: World
    recipe: Recipe
    config: RunConfig
    tokenizer: bytes
    model: Gpt
    flat: FlatParameters
    optimizer: AdamW
    batches: Batches
    signals: Signals
    writer: CheckpointWriter | None
    metrics: MetricsWriter | None


@dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """The same on every rank: the mean loss over micro-batches and ranks, and what the ranks agreed to do."""

    loss: float
    grad_norm: float
    learning_rate: float
    is_stop_due: bool
    is_save_due: bool


class Trainer:
    """Runs from `progress` to the last step, or to a request to stop."""

    def __init__(self, parts: RunParts, progress: Progress) -> None:
        self.parts, self.progress = parts, progress
        self._spec = parts.config.spec
        self._first_step = progress.step + 1
        self._saved_at = self._logged_at = time.monotonic()
        self._logged_tokens = progress.tokens
        self._saved_step = progress.step

    def train(self) -> bool:
        """True when the run is complete, False when it was asked to stop; saved either way.

        Raises InfrastructureError when a peer or the last checkpoint is lost.
        """
        self.parts.signals.begin_steps()
        while self.progress.step < self._spec.steps:
            outcome = self._step()
            is_last = self.progress.step == self._spec.steps
            events: dict[str, float | None] = {}
            if is_last or (self.progress.step % self._spec.eval_interval == 0 and not outcome.is_stop_due):
                events["loss/validation"] = self._validate()
            if outcome.is_save_due and not (is_last or outcome.is_stop_due):
                events |= self._save()
            self._log(outcome, events)
            if outcome.is_stop_due and not is_last:
                break
        self._save_last()
        return self.progress.step >= self._spec.steps

    def _step(self) -> StepOutcome:
        config, progress = self.parts.config, self.progress
        rate = learning_rate(
            progress.step,
            peak=self.parts.recipe.optimizer.learning_rate,
            schedule=self.parts.recipe.schedule,
            steps=self._spec.steps,
        )
        loss, is_stop_due, is_save_due = self._agree(self._compute_gradients())
        gradients = self.parts.world.sum(self.parts.flat.gradients).div_(config.world_size)
        norm = clip_gradients(gradients, self._spec.clip_norm).item()
        progress.step += 1
        progress.samples += config.global_batch
        progress.tokens += config.global_batch * config.model.context_length
        if math.isfinite(norm) and math.isfinite(loss):
            self.parts.optimizer.update(rate)
            progress.record_loss(loss)
        else:
            progress.skipped_steps += 1
        every = self.parts.env.every_steps
        return StepOutcome(
            loss=loss,
            grad_norm=norm,
            learning_rate=rate,
            is_stop_due=is_stop_due,
            is_save_due=is_save_due or (every is not None and progress.step % every == 0),
        )

    def _compute_gradients(self) -> torch.Tensor:
        """Fill the flat gradients with the mean over this rank's micro-batches; the mean loss, a scalar."""
        config, world = self.parts.config, self.parts.world
        self.parts.model.train()
        self.parts.flat.gradients.zero_()
        total = torch.zeros((), device=world.device, dtype=torch.float64)
        for inputs, targets in self.parts.batches.micro_batches(
            self.progress.samples, config.micro_batch_size, config.accumulation
        ):
            with self._autocast():
                loss = self.parts.model.loss(inputs, targets)
            (loss / config.accumulation).backward()
            total += loss.detach()
        return total / config.accumulation

    def _agree(self, loss: torch.Tensor) -> tuple[float, bool, bool]:
        """The mean loss over ranks, and whether any rank was asked to stop or to save. One small sum."""
        signals, env, world = self.parts.signals, self.parts.env, self.parts.world
        is_time = env.every_seconds is not None and time.monotonic() - self._saved_at >= env.every_seconds
        wants_stop = signals.has_stop_request
        wants_save = signals.has_save_request or (world.is_first and is_time)
        signals.has_save_request = False
        flags = torch.tensor([float(wants_stop), float(wants_save)], device=world.device, dtype=torch.float64)
        total, stops, saves = world.sum(torch.cat((loss.view(1), flags))).tolist()
        return total / world.size, stops > 0, saves > 0

    def _autocast(self) -> torch.autocast:
        is_on = self._spec.precision is Precision.BF16
        return torch.autocast(self.parts.world.device.type, dtype=torch.bfloat16, enabled=is_on)

    @torch.no_grad()
    def _validate(self) -> float:
        """Mean loss over the validation sequences, the same on every rank."""
        self.parts.model.eval()
        totals = torch.zeros(2, device=self.parts.world.device, dtype=torch.float64)
        batches = self.parts.batches.validation_batches(self._spec.micro_batch_size, self._spec.eval_batches)
        for inputs, targets in batches:
            with self._autocast():
                totals[0] += self.parts.model.loss(inputs, targets) * len(inputs)
            totals[1] += len(inputs)
        total, count = self.parts.world.sum(totals).tolist()
        self.progress.record_validation(total / count)
        return total / count

    def _save(self) -> dict[str, float | None]:
        """Copy the state and have it written; every rank comes here. What to log."""
        started = time.monotonic()
        rng = self.parts.world.gather(capture_rng(self.parts.world.device).to(self.parts.world.device))
        self._saved_at, self._saved_step = started, self.progress.step
        if self.parts.writer is None:
            return {}
        if not self.parts.writer.save(lambda: self._snapshot(rng)):
            return {"checkpoint/skipped": self.parts.writer.skipped}
        return {"checkpoint/seconds_blocked": time.monotonic() - started}

    def _snapshot(self, rng: torch.Tensor) -> Snapshot:
        parts = self.parts
        return take_snapshot(
            parts.flat,
            parts.optimizer,
            progress=self.progress,
            rng=rng,
            config=parts.config,
            tokenizer=parts.tokenizer,
            fence=parts.env.fence,
        )

    def _save_last(self) -> None:
        """Leave with the present step on disk. Raises InfrastructureError when the disk does not take it."""
        writer = self.parts.writer
        if writer is not None:
            writer.wait()
        events: dict[str, float | None] = {}
        if self._saved_step != self.progress.step:
            events = self._save()
        if writer is None:
            return
        writer.wait()
        self._write_metrics(events | self._describe_saves())
        if writer.fault is not None:
            raise InfrastructureError(f"the checkpoint of step {self.progress.step} was not written: {writer.fault}")

    def _log(self, outcome: StepOutcome, events: dict[str, float | None]) -> None:
        """A line at the first step after a start, every `log_interval`, at the last, and whenever something happened."""
        if self.parts.metrics is None:
            return
        step = self.progress.step
        events |= self._describe_saves()
        if events or step in (self._first_step, self._spec.steps) or step % self._spec.log_interval == 0:
            now = time.monotonic()
            speed = (self.progress.tokens - self._logged_tokens) / max(now - self._logged_at, 1e-9)
            self._logged_at, self._logged_tokens = now, self.progress.tokens
            values: dict[str, float | None] = {
                "loss/train": outcome.loss,
                "loss/average": self.progress.average_loss,
                "optimization/learning_rate": outcome.learning_rate,
                "optimization/grad_norm": outcome.grad_norm,
                "optimization/skipped_steps": self.progress.skipped_steps,
                "performance/tokens_per_second": speed,
                "data/tokens": self.progress.tokens,
            }
            self._write_metrics(values | events)

    def _describe_saves(self) -> dict[str, float | None]:
        values: dict[str, float | None] = {}
        for result in self.parts.writer.take_results() if self.parts.writer else ():
            values["checkpoint/step"] = result.step
            values["checkpoint/seconds_written"] = result.seconds
            if result.fault is None:
                values["checkpoint/size_bytes"] = result.size_bytes
            else:
                values["checkpoint/failed"] = 1
        return values

    def _write_metrics(self, values: dict[str, float | None]) -> None:
        if self.parts.metrics is not None and values:
            self.parts.metrics.write(self.progress.step, time=time.time(), values=values)
