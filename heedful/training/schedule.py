"""The learning rate at each step."""

from __future__ import annotations

import math

from heedful.config import TrainingConfig

__all__ = ["rate"]


def rate(step: int, config: TrainingConfig, halved: int = 0) -> float:
    """Return the rate of update `step`, counted from 1: a straight rise, then a fall.

    The fall with the root of the step does not depend on how many steps are planned, so a run can be made longer
    without becoming another run. The cosine reaches zero with the last step, and a run that ends early by
    `training.patience` has not come down. On a plateau the rate is halved, `halved` times so far.

    >>> settings = TrainingConfig(rate=1.0, warmup=100)
    >>> rate(50, settings), rate(100, settings), rate(400, settings)
    (0.5, 1.0, 0.5)
    >>> settings = TrainingConfig(rate=1.0, warmup=100, decay="cosine", steps=300)
    >>> rate(100, settings), round(rate(200, settings), 2), rate(300, settings)
    (1.0, 0.5, 0.0)
    >>> rate(200, TrainingConfig(rate=1.0, warmup=100, decay="plateau"), halved=2)
    0.25
    """
    if step < config.warmup:
        return config.rate * step / config.warmup
    match config.decay:
        case "root":
            return config.rate * math.sqrt(max(config.warmup, 1) / step)
        case "cosine":
            done = (step - config.warmup) / max(1, config.steps - config.warmup)
            return config.rate * (1 + math.cos(math.pi * min(done, 1.0))) / 2
        case "plateau":
            return config.rate * 0.5**halved
    return config.rate
