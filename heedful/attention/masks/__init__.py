"""Masks: what may be attended to. True means may be attended to, everywhere.

`python -m heedful.attention.masks` draws them.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["causal", "picture", "until"]


def until(lengths: Tensor, size: int | None = None) -> Tensor:
    """Return keep (B, S): the first `lengths[b]` positions of each row.  lengths (B,) -> (B, S).

    >>> until(torch.tensor([1, 3])).int().tolist()
    [[1, 0, 0], [1, 1, 1]]
    """
    size = int(lengths.max()) if size is None else size
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def causal(T: int, S: int | None = None, device: torch.device | None = None) -> Tensor:
    """Return keep (1, T, S), the same for all sentences: position t sees what is not after it.

    The last query sees every position, also when there are more of them than queries.

    >>> causal(3)[0].int().tolist()
    [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    """
    S = T if S is None else S
    return torch.ones(1, T, S, dtype=torch.bool, device=device).tril(S - T)


def picture(keep: Tensor) -> str:
    """Return a mask of two axes as text, a row for each query: ██ may be attended to, ·· may not."""
    return "\n".join("".join("██" if seen else "··" for seen in row) for row in keep.tolist())
