"""Attention itself: scores to weights to context. These functions are the definition.

Everything faster, in `heedful.fused`, is tested against them (`tests/attention/test_attention_contract.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from heedful.attention import scores as pure
from heedful.errors import ShapeError
from heedful.notation import check

__all__ = ["additive_attend", "attend", "attend_by", "kept_by_any", "lowest", "mask_bias", "masked_softmax"]


def lowest(dtype: torch.dtype) -> float:
    """Return the score of a position that may not be attended to: the one mask constant.

    It is finite, because a row of -inf would be NaN, and so would its gradient; and half of the lowest number, so that
    a score can be added to it.
    """
    return torch.finfo(dtype).min / 2


def mask_bias(keep: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask to add to scores: 0 where `keep` is True, `lowest` elsewhere.  The shape of keep."""
    return torch.zeros(keep.shape, dtype=dtype, device=keep.device).masked_fill_(~keep, lowest(dtype))


def masked_softmax(scores: Tensor, keep: Tensor | None) -> Tensor:
    """Return α_tj = exp e_tj / Σ_i exp e_ti over positions to keep.  scores (…, T, S), keep like it -> (…, T, S).

    A row with nothing to attend to gives zeros, never NaN, and so does its gradient.
    """
    if keep is None:
        return torch.softmax(scores, dim=-1)
    blocked = ~keep
    weights = torch.softmax(scores.masked_fill(blocked, lowest(scores.dtype)), dim=-1)
    return weights.masked_fill(blocked, 0.0)


def attend(scores: Tensor, values: Tensor, keep: Tensor | None = None, dropout: float = 0.0) -> tuple[Tensor, Tensor]:
    """Return c_t = Σ_j α_tj values_j and α.  scores (B, T, S), values (B, S, D) -> (B, T, D), (B, T, S).

    With heads: scores (B, H, T, S), values (B, H, S, C) -> (B, H, T, C), (B, H, T, S).
    `keep` says what may be attended to, for all heads alike: (B, S), or (B, T, S) where an axis of size 1 stands for
    all, as in `causal`. Other values have to be finite all the same: their weight is 0, and 0 · NaN is NaN (see
    `attend_by`). `dropout` is the share of weights that are left out of the sum; the returned weights are whole.
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


def attend_by(
    score: Callable[[Tensor, Tensor], Tensor], q: Tensor, k: Tensor, values: Tensor, keep: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return c and α of a score, e = score(q, k).  q (B, T, A), k (B, S, A), values (B, S, D), keep as in `attend`.

    A position that no query may attend to may hold anything, NaN too.
    """
    if keep is not None:
        blocked = ~(keep if keep.dim() == 2 else kept_by_any(keep))[..., None]
        k, values = k.masked_fill(blocked, 0), values.masked_fill(blocked, 0)  # 0 · NaN would be NaN
    return attend(score(q, k), values, keep)


def additive_attend(
    q: Tensor, k: Tensor, v: Tensor, values: Tensor, keep: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return c_t = Σ_j α_tj values_j and α = softmax_j v · tanh(q_t + k_j): `attend_by` of `additive`.

    q (B, T, A), k (B, S, A), v (A,), values (B, S, D), keep as in `attend` -> (B, T, D), (B, T, S). It holds
    (B, T, S, A). All is in fp32 or wider, whatever autocast says: the sum of A terms in bf16 would leave two digits.
    """
    wide = torch.promote_types(torch.promote_types(q.dtype, k.dtype), torch.promote_types(v.dtype, values.dtype))
    wide = torch.promote_types(wide, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        v = v.to(wide)
        context, weights = attend_by(lambda q, k: pure.additive(q, k, v), q.to(wide), k.to(wide), values.to(wide), keep)
        return context.to(values.dtype), weights


def kept_by_any(keep: Tensor) -> Tensor:
    """Return the positions that any query may attend to.  keep (B, T, S) -> (B, S)."""
    if keep.stride(1) == 0 and keep.shape[1]:
        return keep[:, 0]
    return keep.any(1)
