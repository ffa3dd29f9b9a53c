"""Small models in float64, and batches for them."""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.attention import until
from heedful.config import ModelConfig
from heedful.models import Network, build


def filled(config: ModelConfig, source: int, target: int, seed: int = 0) -> Network:
    """Return a model in float64 without a zero among its weights."""
    torch.manual_seed(seed)
    model = build(config, source, target).double().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.7)
    return model


def padded(lengths: list[int], source: int, target: int, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return random source tokens x (B, S) of these lengths, keep (B, S), and target tokens y (B, steps)."""
    generator = torch.Generator().manual_seed(5)
    keep = until(torch.tensor(lengths))
    x = torch.randint(1, source, keep.shape, generator=generator).masked_fill(~keep, 0)
    return x, keep, torch.randint(1, target, (len(lengths), steps), generator=generator)
