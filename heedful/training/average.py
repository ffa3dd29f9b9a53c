"""Averages of weights: a moving one while training, and the mean of several models."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["Average", "mean"]


class Average:
    """a ← a + (1 - d)(w - a) after each update, d = min(decay, (1 + t) / (10 + t)): short at first, then longer."""

    def __init__(self, parameters: Sequence[Tensor], decay: float, device: torch.device) -> None:
        self.parameters, self.decay = list(parameters), decay
        self.values = [p.detach().clone() for p in self.parameters]
        self.part = torch.zeros((), device=device)

    def at(self, step: int) -> None:
        """Set how much of the weights is taken at a step."""
        self.part.fill_(1 - min(self.decay, (1 + step) / (10 + step)))

    @torch.no_grad()
    def take(self, off: Tensor) -> None:
        """Move towards the weights as they are; not at all where `off` is 1."""
        differences = torch._foreach_sub(self.parameters, self.values)
        torch._foreach_mul_(differences, self.part * (1 - off))
        torch._foreach_add_(self.values, differences)

    @torch.no_grad()
    def swap(self) -> None:
        """Exchange the model's weights and the average: to measure it, and once more to go on."""
        for parameter, value in zip(self.parameters, self.values, strict=True):
            kept = parameter.detach().clone()
            parameter.copy_(value)
            value.copy_(kept)


def mean(models: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of several models' weights."""
    return {
        name: torch.stack([m[name].double() for m in models]).mean(0).to(tensor.dtype)
        for name, tensor in models[0].items()
    }
