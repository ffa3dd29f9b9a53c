"""The learning rate at each step."""

from __future__ import annotations

import math

from heedful.config import TrainingConfig

__all__ = ["rate"]


def rate(step: int, config: TrainingConfig) -> float:
    """Return the rate of update `step`, counted from 1: a straight rise, then a fall with the root of the step.

    It does not depend on how many steps are planned, so a run can be made longer without becoming another run.

    >>> settings = TrainingConfig(rate=1.0, warmup=100)
    >>> rate(50, settings), rate(100, settings), rate(400, settings)
    (0.5, 1.0, 0.5)
    """
    if step < config.warmup:
        return config.rate * step / config.warmup
    return config.rate * math.sqrt(max(config.warmup, 1) / step) if config.decay == "root" else config.rate
