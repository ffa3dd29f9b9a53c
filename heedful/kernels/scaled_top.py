"""The largest weights of every query, found without looking at all of them.

The `count` largest lie in the `count` groups of keys with the largest maxima, which `scaled_pass` has written down.
Only those groups are looked into: 8 groups of 16 keys for the top 8, whatever the length. What is compared are integers
that hold a score and where it stands, so that one maximum finds both, and of equal ones the first that is looked at.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedful.kernels.launch import kernel, part, power_of_2
from heedful.kernels.scaled_pass import GROUP, Given, on_device
from heedful.kernels.scaled_plain import Scores, Top

if TYPE_CHECKING:
    import triton.language as tl

__all__ = ["MOST", "Found"]

MOST = 16  # positions that are looked for at once
QUERIES = 4  # of a program
CHUNK = 512  # groups that are compared at once
STEP = 16  # channels that are multiplied at once


@part
def _packed(z, at) -> tl.tensor:
    """z and a place as one integer, in the order of z, then against that of the place."""
    bits = z.to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.to(tl.int64) << 32) | (0x7FFFFFFF - at).to(tl.int64)


@kernel("T", "S", "H", "begin", "end", "groups", "bb", "bh", "group")
def _look(
    q, k, lse, bias, mask, tops, positions, weights, H, T, S, begin, end, groups,
    qb, qh, qt, kb, kh, ks, bb, bh, mb, mh, mt, ms, group, factor,
    C: tl.constexpr, CAUSAL: tl.constexpr, BIAS: tl.constexpr, MASK: tl.constexpr, COUNT: tl.constexpr,
    K: tl.constexpr, R: tl.constexpr, CHUNK: tl.constexpr, STEP: tl.constexpr, KEYS: tl.constexpr, GROUP: tl.constexpr,
) -> None:  # fmt: skip
    pair = tl.program_id(0).to(tl.int64)
    sentence, head = pair // H, pair % H
    rows = begin + tl.program_id(1) * R + tl.arange(0, R)
    here = rows < end
    NOTHING: tl.constexpr = -0x7FFFFFFFFFFFFFFF
    slot = tl.arange(0, K)
    # The groups with the largest maxima, largest first.
    tops += (pair * (end - begin) + rows - begin) * groups
    best = tl.full([R, K], NOTHING, tl.int64)
    last = groups
    if CAUSAL:
        last = tl.minimum(groups, ((begin + (tl.program_id(1) + 1) * R - 1) // KEYS + 1) * (KEYS // GROUP))
    for first in range(0, last, CHUNK):
        g = first + tl.arange(0, CHUNK)
        x = _packed(tl.load(tops[:, None] + g[None, :], here[:, None] & (g < last)[None, :], 0.0), g[None, :])
        x = tl.where((g < last)[None, :], x, NOTHING)
        merged = tl.full([R, K], NOTHING, tl.int64)
        for j in range(COUNT):
            m = tl.maximum(tl.max(x, 1), tl.max(best, 1))[:, None]
            merged = tl.where(slot[None, :] == j, m, merged)
            x = tl.where(x == m, NOTHING, x)
            best = tl.where(best == m, NOTHING, best)
        best = merged
    # Their keys: those that one thread of `_pass` held.
    g = (0x7FFFFFFF - (best & 0x7FFFFFFF)).to(tl.int32)
    per: tl.constexpr = KEYS // GROUP
    g = g // per * KEYS + (g % per) // 4 * 64 + (g % 4) * 2
    g = tl.where(best == NOTHING, S, g)
    member = tl.arange(0, GROUP)
    columns = tl.reshape(g[:, :, None] + (member // 2 * 8 + member % 2)[None, None, :], [R, K * GROUP])
    there = here[:, None] & (columns < S)
    q += sentence * qb + head * qh
    k += sentence * kb + (head // group) * kh
    s = tl.zeros([R, K * GROUP], tl.float32)
    for start in range(0, C, STEP):
        c = start + tl.arange(0, STEP)
        a = tl.load(q + rows.to(tl.int64)[:, None] * qt + c[None, :], here[:, None] & (c < C)[None, :], 0.0)
        at = columns.to(tl.int64)[:, :, None] * ks + c[None, None, :]
        key = tl.load(k + at, there[:, :, None] & (c < C)[None, None, :], 0.0)
        s += tl.sum(a.to(tl.float32)[:, None, :] * key.to(tl.float32), 2)
    level = tl.load(lse + pair * T + rows, here, float("inf"))
    level = tl.where(level == float("inf"), 1e30, level * 1.4426950408889634)
    z = s * factor - level[:, None]
    if BIAS:
        z += tl.load(bias + sentence * bb + head * bh + columns, there, -1e30)
    if MASK:
        at = rows.to(tl.int64)[:, None] * mt + columns.to(tl.int64) * ms
        m = tl.load(mask + sentence * mb + head * mh + at, there, 0)
        if MASK == 1:
            z = tl.where(m != 0, z, -1e30)
        else:
            m = m.to(tl.float32)
            z = tl.where(m <= -1e30, -1e30, z + m * 1.4426950408889634)
    if CAUSAL:
        z = tl.where(columns <= rows[:, None], z, -1e30)
    x = tl.where(there, _packed(z, columns), NOTHING)
    out = (pair * T + rows) * COUNT
    for j in range(COUNT):
        largest = tl.max(x, 1)
        ordered = (largest >> 32).to(tl.int32)
        best_z = (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        # Not >, which would hide what is not a number.
        none = (largest == NOTHING) | (best_z <= -1e29)
        tl.store(positions + out + j, tl.where(none, -1, 0x7FFFFFFF - (largest & 0x7FFFFFFF)), here)
        tl.store(weights + out + j, tl.where(none, 0.0, tl.exp2(best_z)), here)
        x = tl.where(x == largest[:, None], NOTHING, x)


class Found:
    """The top of all queries, filled slab by slab."""

    def __init__(self, scores: Scores, count: int) -> None:
        B, H, T, S = scores.shape
        self.scores, self.count = scores, count
        self.positions = torch.empty(B, H, T, count, dtype=torch.int64, device=scores.q.device)
        self.weights = torch.empty(B, H, T, count, device=scores.q.device)
        if not S:  # otherwise all of it is written
            self.positions.fill_(-1)
            self.weights.zero_()

    def look(self, given: Given, lse: Tensor, tops: Tensor, begin: int, end: int) -> None:
        """Find the top of some queries.  tops (B, H, end - begin, groups)."""
        B, H, T, S = self.scores.shape
        with on_device(lse):
            _look[(B * H, -(-(end - begin) // QUERIES))](
                given.q, given.k, lse, given.bias, given.mask, tops, self.positions, self.weights, H, T, S, begin, end,
                tops.shape[-1], *given.strides, given.group, given.factor, *given.compiled, self.count,
                power_of_2(self.count), QUERIES, CHUNK, STEP, given.keys, GROUP, num_warps=4,
            )  # fmt: skip

    def top(self) -> Top:
        """Return what was found."""
        return Top(self.positions, self.weights, self.weights.sum(-1))
