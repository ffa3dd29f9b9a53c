"""Models and sentences that several tests compare something with."""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.attention import until
from heedful.config import ModelConfig
from heedful.models import Network, build


def filled(config: ModelConfig, source: int, target: int, seed: int = 0) -> Network:
    """A model in float64, so that what is equal is equal to many digits; no weight is zero."""
    torch.manual_seed(seed)
    model = build(config, source, target).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.7)
    return model


def padded(lengths: list[int], source: int, target: int, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Source sentences of these lengths, what to keep of them, and targets of so many steps."""
    generator = torch.Generator().manual_seed(5)
    keep = until(torch.tensor(lengths))
    x = torch.randint(1, source, keep.shape, generator=generator).masked_fill(~keep, 0)
    return x, keep, torch.randint(1, target, (len(lengths), steps), generator=generator)
