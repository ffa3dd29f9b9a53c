"""Attention of one query for each hypothesis over cached keys, in static shapes: no number is read on the host.

The cache has room for a fixed number of positions, and the number of keys to attend to is a tensor, so that a CUDA
graph can be captured once and replayed at every step. Hypotheses of a beam are not copied when they are reordered:
`rows` says which row of the cache holds each position of a hypothesis, and only that small table is reordered.

A program of the kernel computes one head of one query. It loads as many keys as there are, a number that it reads on
the device, and keeps a running maximum and sum of their scores. In self-attention it writes the new token's key and
value to the cache, too, and takes them from its registers. Sums are in fp32, or fp64 for fp64; products are never
rounded to TF32. Where kernels are not used, `_reference` computes the same.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedful.attention import until
from heedful.errors import ShapeError
from heedful.fused.triton.launch import kernel, power_of_2
from heedful.fused.triton.policy import usable

if TYPE_CHECKING:
    import triton.language as tl

POSITIONS = 16  # of a tile of keys
TILE = 2048  # elements of a tile at most: a program is one warp


def attend_source(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    """Attend to the first `lengths[b]` positions of each sentence.  q (R, H·C), k, v (B, H, S, C) -> (R, H·C).

    R is B, or B·K: K queries of each sentence, side by side. A row with nothing to attend to gives zeros.
    """
    if usable(q):
        return attend_kernel(q, k, v, lengths)
    B, H, S, C = k.shape
    keep = until(lengths, S)[:, None, None]
    queries = q.view(B, -1, H, C).transpose(1, 2)
    return _reference(queries, k, v, keep).transpose(1, 2).reshape(q.shape)


def attend_cache(x: Tensor, k: Tensor, v: Tensor, t: Tensor, rows: Tensor | None = None) -> Tensor:
    """Write the keys and values of a token at position t, and attend to it and those before.  -> (R, H·C).

    x (R, 3·H·C) is [q; k; v] of the token, k and v (R, H, T, C) the cache, t (B,) the position of each sentence's
    hypotheses. With `rows` (R, T), position j of hypothesis r is in row `rows[r, j]` of the cache; that of the new
    token, r itself, is written to it.
    """
    R, H, T, C = k.shape
    D, K = H * C, R // len(t)
    if usable(x):
        return attend_kernel(x[:, :D], k, v, t, new=(x[:, D : 2 * D], x[:, 2 * D :]), rows=rows)
    at = t.repeat_interleave(K) if K > 1 else t
    own = torch.arange(R, device=x.device)
    k[own, :, at], v[own, :, at] = x[:, D : 2 * D].view(R, H, C), x[:, 2 * D :].view(R, H, C)
    if rows is not None:
        rows[own, at] = own
        positions = torch.arange(T, device=x.device)
        k, v = (side[rows, :, positions].transpose(1, 2) for side in (k, v))  # (R, T, H, C)
    keep = until(at + 1, T)[:, None, None]
    return _reference(x[:, :D].view(R, H, 1, C), k, v, keep).reshape(R, D)


def _reference(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    """Attend with scaled scores.  q (B, H, n, C), k, v (B, H, S, C), keep (B, 1, 1, S) -> (B, H, n, C).

    Positions that are not kept may hold anything, also NaN.
    """
    scores = (q.float() * q.shape[-1] ** -0.5) @ k.float().transpose(-2, -1)
    weights = scores.masked_fill(~keep, -torch.inf).softmax(-1)
    weights = weights.masked_fill(~keep.any(-1, keepdim=True), 0.0)
    c: Tensor = weights @ v.float().masked_fill(~keep.transpose(-2, -1), 0.0)
    return c.to(q.dtype)


@kernel("K")
def _attend(
    q, new_k, new_v, k, v, counts, rows, c,
    K, scale, q_row, new_row, k_row, k_head, k_place, v_row, v_head, v_place, rows_row,
    C: tl.constexpr, WRITE: tl.constexpr, INDEXED: tl.constexpr, BS: tl.constexpr, BC: tl.constexpr,
    SUM: tl.constexpr,
) -> None:  # fmt: skip
    r, h = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    b = r // K
    count = tl.load(counts + b)
    a = tl.arange(0, BC)
    inside = a < C
    x = tl.load(q + r * q_row + h * C + a, inside, 0.0).to(SUM) * scale
    if WRITE:
        key = tl.load(new_k + r * new_row + h * C + a, inside, 0.0)
        value = tl.load(new_v + r * new_row + h * C + a, inside, 0.0)
        tl.store(k + r * k_row + h * k_head + count * k_place + a, key, inside)
        tl.store(v + r * v_row + h * v_head + count * v_place + a, value, inside)
        if INDEXED:
            tl.store(rows + r * rows_row + count, r, h == 0)
        top = tl.sum(x * key.to(SUM), 0)
        mass = top * 0.0 + 1.0
        total = value.to(SUM)
    else:
        top = tl.sum(x, 0) * 0.0 - float("inf")
        mass = tl.sum(x, 0) * 0.0
        total = x * 0.0
    for begin in range(0, count, BS):
        j = begin + tl.arange(0, BS)
        there = j < count
        row = tl.zeros([BS], tl.int64) + b
        if INDEXED:
            row = tl.load(rows + r * rows_row + j, there, 0)
        mask = there[:, None] & inside[None, :]
        place = row * k_row + h * k_head + j * k_place
        keys = tl.load(k + place[:, None] + a[None, :], mask, 0.0).to(SUM)
        place = row * v_row + h * v_head + j * v_place
        values = tl.load(v + place[:, None] + a[None, :], mask, 0.0).to(SUM)
        e = tl.where(there, tl.sum(keys * x[None, :], 1), -float("inf"))
        higher = tl.maximum(top, tl.max(e, 0))
        p = tl.exp(e - higher)
        before = tl.exp(top - higher)
        mass = mass * before + tl.sum(p, 0)
        total = total * before + tl.sum(p[:, None] * values, 0)
        top = higher
    # A row with nothing to attend to gives zeros.
    total = total / tl.where(mass == 0, 1.0, mass)
    tl.store(c + (r * tl.num_programs(1) + h) * C + a, total.to(c.dtype.element_ty), inside)


def attend_kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    counts: Tensor,
    new: tuple[Tensor, Tensor] | None = None,
    rows: Tensor | None = None,
) -> Tensor:
    """Attend to the first `counts[b]` positions, and to a new one if there is one.  q (R, H·C) -> (R, H·C).

    k, v (N, H, T, C), counts (B,), R = B·K. Query r attends to row r // K, or at position j to row `rows[r, j]`. `new`
    are the key and value of the new position (R, H·C), which are also written to row r, at position `counts[b]`; so is
    r to `rows`.
    """
    (R, D), (_, H, _, C), B = q.shape, k.shape, len(counts)
    if D != H * C or R % B or any(x.stride(-1) != 1 for x in (q, k, v, *(new or ()))):
        raise ShapeError(f"q {tuple(q.shape)}, k {tuple(k.shape)}, counts ({B},): expected (B·K, H·C) and (N, H, T, C)")
    c = q.new_empty(R, D)
    new_k, new_v = new or (q, q)
    kind = "fp64" if q.dtype == torch.float64 else "fp32"
    width = power_of_2(C)
    with torch.cuda.device_of(q):
        _attend[(R, H)](
            q, new_k, new_v, k, v, counts, counts if rows is None else rows, c,
            R // B, C**-0.5, q.stride(0), new_k.stride(0), *k.stride()[:3], *v.stride()[:3],
            0 if rows is None else rows.stride(0), C, new is not None, rows is not None,
            min(POSITIONS, max(1, TILE // width)), width, _types()[kind], num_warps=1,
        )  # fmt: skip
    return c


def _types() -> dict[str, object]:
    """Return Triton's types of sums."""
    import triton.language

    return {"fp32": triton.language.float32, "fp64": triton.language.float64}
