"""Bahdanau's attention for all T questions at once: the plain way, and the choice between it and the fused kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.attention import scores
from heedful.attention.attend import attend
from heedful.errors import ShapeError
from heedful.kernels import additive as fused
from heedful.kernels import path
from heedful.notation import check

__all__ = ["additive_attend", "additive_reference"]

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def additive_reference(
    q: Tensor, k: Tensor, v: Tensor, values: Tensor, keep: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return c_t = Σ_j α_tj values_j and α = softmax_j v · tanh(q_t + k_j).  Shapes: see `additive_attend`.

    It is `additive` and `attend`, one after the other: the definition, which holds (B, T, S, A). All is worked out in
    fp32 or wider, whatever autocast says: the sum of A terms in bf16 would leave two digits of a score.
    """
    wide = torch.promote_types(torch.promote_types(q.dtype, k.dtype), torch.promote_types(v.dtype, values.dtype))
    wide = torch.promote_types(wide, torch.float32)
    if keep is not None:
        blocked = ~(keep if keep.dim() == 2 else fused.seen_by_any(keep))[..., None]
        k, values = k.masked_fill(blocked, 0), values.masked_fill(blocked, 0)  # 0 · NaN would be NaN
    with torch.autocast(q.device.type, enabled=False):
        context, weights = attend(scores.additive(q.to(wide), k.to(wide), v.to(wide)), values.to(wide), keep)
        return context.to(values.dtype), weights


def additive_attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    values: Tensor,
    keep: Tensor | None = None,
    how: str = "auto",
    weights: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """Return c and, if wanted, α.  q (B, T, A), k (B, S, A), v (A,), values (B, S, D) -> (B, T, D), (B, T, S).

    c_t = Σ_j α_tj values_j, α = softmax_j v · tanh(q_t + k_j). `keep` says what may be looked at: (B, S), or (B, T, S)
    where an axis of size 1 stands for all. A row with nothing to look at gives zeros, and what nobody may look at may
    hold anything, NaN too. Weights are fp32 (float64 if anything is), the context is of the values' type; autocast
    changes neither.

    `how`: "kernel" for the fused kernels, which never hold (B, T, S, A), "reference" for the plain way, "auto" for
    the kernels where `heedful.kernels.path` says so.
    """
    sizes = check(q=(q, "B T A"), k=(k, "B S A"), v=(v, "A"), values=(values, "B S D"))
    given = {"q": q, "k": k, "v": v, "values": values}
    for name, x in given.items():
        if x.dtype not in FLOATS:
            raise ShapeError(f"{name} is of {x.dtype}, expected one of {', '.join(map(str, FLOATS))}")
    keep = fused.fit(given, keep, [sizes[axis] for axis in "BTS"])
    way = "reference" if how == "auto" and fused.unfit(q, k, v) else path(q.device, how).way
    found = (fused.fitted_attend if way == "kernel" else additive_reference)(q, k, v, values, keep)
    return found if weights else (found[0], None)
