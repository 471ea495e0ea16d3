"""Learning rate as a pure function of the step."""

from __future__ import annotations

import math

from training.protocol.train_spec import ScheduleSpec


def learning_rate(step: int, *, peak: float, schedule: ScheduleSpec, steps: int) -> float:
    """The rate of the optimiser step that follows `step` finished ones, out of `steps`.

    Warm-up is linear and reaches `peak` at its last step; the cosine then falls to `peak * min_lr_ratio` at the last.
    """
    warmup = min(schedule.warmup_steps, steps)
    if step < warmup:
        return peak * (step + 1) / warmup
    if schedule.name == "constant":
        return peak
    progress = (step - warmup) / max(1, steps - 1 - warmup)
    share = 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
    return peak * (schedule.min_lr_ratio + (1 - schedule.min_lr_ratio) * share)
