"""Attention itself: scores to weights to context."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from heedful.errors import ShapeError
from heedful.notation import check

__all__ = ["attend", "masked_softmax"]


def masked_softmax(scores: Tensor, keep: Tensor | None) -> Tensor:
    """Return α_tj = exp e_tj / Σ_i exp e_ti over what may be looked at.  scores (…, T, S), keep like it -> (…, T, S).

    A row with nothing to look at gives zeros, never NaN, and so does its gradient.
    """
    if keep is None:
        return torch.softmax(scores, dim=-1)
    # The lowest finite number rather than -inf: a row of -inf would be NaN, and so would its gradient.
    blocked = ~keep
    weights = torch.softmax(scores.masked_fill(blocked, torch.finfo(scores.dtype).min), dim=-1)
    return weights.masked_fill(blocked, 0.0)


def attend(scores: Tensor, values: Tensor, keep: Tensor | None = None, dropout: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return c_t = Σ_j α_tj values_j and α.  scores (B, T, S), values (B, S, D) -> (B, T, D), (B, T, S).

    With heads: scores (B, H, T, S), values (B, H, S, C) -> (B, H, T, C), (B, H, T, S).
    `keep` says what may be looked at, for all heads alike: (B, S), or (B, T, S) where an axis of size 1 stands for all,
    as in `causal`. What may not be looked at has to be finite all the same: its weight is 0, and 0 · NaN is NaN.
    `dropout` is the share of weights that are left out of the sum; the returned weights are whole.
    """
    if scores.dim() not in (3, 4) or scores.shape[:-2] != values.shape[:-2] or scores.shape[-1] != values.shape[-2]:
        heads = "H " if scores.dim() == 4 else ""
        check(scores=(scores, f"B {heads}T S"), values=(values, f"B {heads}S {'C' if heads else 'D'}"))
    if keep is not None:
        keep = keep[:, None] if keep.dim() == 2 else keep
        wanted = (scores.shape[0], *scores.shape[-2:])
        if keep.dim() != 3 or any(found not in (1, size) for found, size in zip(keep.shape, wanted, strict=True)):
            raise ShapeError(f"keep has shape {tuple(keep.shape)}, expected (B, S) or (B, T, S) for scores {wanted}")
        keep = keep[:, None] if scores.dim() == 4 else keep
    weights = masked_softmax(scores, keep)
    return (functional.dropout(weights, dropout) if dropout else weights) @ values, weights
