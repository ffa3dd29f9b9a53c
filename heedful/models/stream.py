"""What runs through the layers of the Transformer, and what stands around each of their sub-layers.

What a sub-layer found, g, is added to x only where x is read next. There it is normalised, too, so that when training
on a GPU the sum, its dropout and LN are one kernel (`heedful.kernels.residual`): in bf16 and fp16, since in fp32 a
Transformer trained slower with the kernels of its layers than without.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.config import TransformerConfig
from heedful.kernels import Chance, residual_norm, usable
from heedful.models.dropout import dropout

__all__ = ["Residual", "Stream", "add_and_norm"]

HALVES = (torch.bfloat16, torch.float16)


class Stream(NamedTuple):
    """x + dropout(g), not added up yet; g is None when there is nothing to add. With a chance, kernels do the work."""

    x: Tensor
    g: Tensor | None = None
    chance: Chance | None = None

    @classmethod
    def of(cls, x: Tensor, training: bool) -> Stream:
        """Begin with the words' embeddings.  x (B, n, D)."""
        fused = training and torch.is_grad_enabled() and _by_kernels(x)
        return cls(x, None, Chance(x.device) if fused else None)


def _by_kernels(x: Tensor) -> bool:
    """Whether kernels do the work of the layers: where they may, and products are taken in a half type."""
    return usable(x) and _precision(x) in HALVES


def _precision(x: Tensor) -> torch.dtype:
    """Return the type that products of x are taken in: autocast's, or its own."""
    place = x.device.type
    return torch.get_autocast_dtype(place) if torch.is_autocast_enabled(place) else x.dtype


def add_and_norm(stream: Stream, LN: nn.Module, p: float) -> tuple[Tensor, Tensor]:
    """Return x' = x + dropout(g) and LN(x').  (B, n, D) each."""
    x, g, chance = stream
    if chance is not None and isinstance(LN, nn.LayerNorm):
        # Under autocast only products read what is normalised, and would round it themselves.
        return residual_norm(x, g, LN, p, chance, _precision(x))
    if g is not None:
        x = x + (dropout(g, p) if p else g)
    return x, LN(x)


class Residual(nn.Module):
    """What stands around every sub-layer g: x + g(LN(x)) with `norm=pre`, LN(x + g(x)) with `norm=post`."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.pre, self.dropout = config.norm == "pre", config.dropout
        self.LN = nn.LayerNorm(config.width)

    def before(self, stream: Stream) -> tuple[Stream, Tensor]:
        """Return the stream as it is here, and what the sub-layer reads.  (B, n, D)."""
        if not self.pre:
            return stream, stream.x
        x, n = add_and_norm(stream, self.LN, self.dropout if self.training else 0.0)
        return stream._replace(x=x, g=None), n

    def after(self, stream: Stream, g: Tensor) -> Stream:
        """Return what stands after it.  g (B, n, D)."""
        stream = stream._replace(g=g)
        if self.pre:
            return stream
        x, g = add_and_norm(stream, self.LN, self.dropout if self.training else 0.0)
        return stream._replace(x=g.to(x.dtype), g=None)
