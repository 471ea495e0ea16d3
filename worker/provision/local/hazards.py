"""How long spot capacity lasts: heavy-tailed runs drawn from a hazard that falls with age.

The figures are of public spot availability records: the hazard of losing a spot instance is about 2.7 an hour at 6-15
minutes of age, 0.47 at 1-2 hours and 0.07 past 16 hours (roughly 0.5-0.7 divided by the age); the median run is 0.56
hours. The bins between are interpolated. Runs are never memoryless: a zone that has been up long stays up long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

LOSSES_AN_HOUR_BY_AGE = (
    (0.0, 0.0),
    (0.1, 2.7),
    (0.25, 1.0),
    (0.5, 0.65),
    (1.0, 0.47),
    (2.0, 0.27),
    (4.0, 0.15),
    (8.0, 0.09),
    (16.0, 0.07),
)
"""(age in hours from which the hazard holds, hazard an hour). The last one holds for ever."""


def draw_run_hours(uniform: float, scale: float = 1.0) -> float:
    """The run's length in hours for a uniform draw in [0, 1), by inverting the cumulative hazard. `scale` stretches it."""
    left = -math.log1p(-uniform)
    for (age, hazard), (next_age, _) in pairwise(LOSSES_AN_HOUR_BY_AGE):
        spent = hazard * (next_age - age)
        if left < spent:
            return scale * (age + left / hazard)
        left -= spent
    age, hazard = LOSSES_AN_HOUR_BY_AGE[-1]
    return scale * (age + left / hazard)


def mean_run_hours() -> float:
    """The mean of `draw_run_hours` at scale 1: the integral of the survival function."""
    mean, survival = 0.0, 1.0
    for (age, hazard), (next_age, _) in pairwise(LOSSES_AN_HOUR_BY_AGE):
        width = next_age - age
        end = survival * math.exp(-hazard * width)
        mean += survival * width if hazard == 0 else (survival - end) / hazard
        survival = end
    return mean + survival / LOSSES_AN_HOUR_BY_AGE[-1][1]


@dataclass(frozen=True, kw_only=True)
class RunScales:
    """How a zone stretches its up-runs and down-runs."""

    up: float
    down: float


def scales_for(mean_up_hours: float, availability: float) -> RunScales:
    """Scales that give the zone this mean up-run and this share of time up; 0 < availability < 1."""
    mean_down_hours = mean_up_hours * (1 - availability) / availability
    unit = mean_run_hours()
    return RunScales(up=mean_up_hours / unit, down=mean_down_hours / unit)
