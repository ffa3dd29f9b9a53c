"""Dropout that is cheap on the CPU.

PyTorch draws one random number of 53 bits there for every element, which takes longer than the product with a matrix of
width 256 that follows. 16 bits do, four from each number drawn: p is met to 1/65,536.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["dropout"]

FINE = 1 << 16


def dropout(x: Tensor, p: float) -> Tensor:
    """Leave out a share p of the elements, and enlarge the others as much: the mean stays.  (…) -> (…)."""
    if p == 0 or x.device.type != "cpu":
        return F.dropout(x, p)
    return x * _mask(x, p)


def _mask(like: Tensor, p: float) -> Tensor:
    """Return 1/(1-p) for what stays, 0 for what is left out."""
    left_out = max(1, round(p * FINE))
    n = like.numel()
    drawn = torch.empty((n + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[:n]
    # 0 or 1 by cutting off on both sides of the border: five times faster than a comparison.
    border = left_out - FINE // 2
    stays = drawn.clamp_(border - 1, border).sub_(border - 1)
    return stays.view(like.shape).to(like.dtype).mul_(FINE / (FINE - left_out))
