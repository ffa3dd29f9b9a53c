"""The largest weights of every query, found without looking at all of them.

The `count` largest lie in the `count` groups of keys with the largest maxima, which `scaled_pass` has written down.
Only those groups are looked into: 8 groups of 16 keys for the top 8, whatever the length. A program is one warp, and
has one query. Scores are compared as integers in the same order, whose maximum over a warp is one instruction; where it
stands is the smallest place that has it, so that of equal ones the first that is looked at is named.
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

__all__ = ["MOST", "Found", "together"]

MOST = 16  # positions that are looked for at once
QUERIES = 1  # of a program
CHUNK = 512  # groups that are compared at once
FETCHED = 2048  # channels of keys that are fetched at once


@part
def _ordered(z) -> tl.tensor:
    """z as an integer in the same order."""
    bits = z.to(tl.int32, bitcast=True)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@kernel("T", "S", "H", "begin", "end", "groups", "bb", "bh", "group")
def _look(
    q, k, lse, bias, mask, tops, positions, weights, H, T, S, begin, end, groups,
    qb, qh, qt, kb, kh, ks, bb, bh, mb, mh, mt, ms, group, factor,
    C: tl.constexpr, CAUSAL: tl.constexpr, BIAS: tl.constexpr, MASK: tl.constexpr, COUNT: tl.constexpr,
    K: tl.constexpr, R: tl.constexpr, CHUNK: tl.constexpr, CHANNELS: tl.constexpr, TOGETHER: tl.constexpr,
    KEYS: tl.constexpr, GROUP: tl.constexpr,
) -> None:  # fmt: skip
    pair = tl.program_id(0).to(tl.int64)
    sentence, head = pair // H, pair % H
    rows = begin + tl.program_id(1) * R + tl.arange(0, R)
    here = rows < end
    LOWEST: tl.constexpr = -0x80000000
    NOWHERE: tl.constexpr = 0x7FFFFFFF
    slot = tl.arange(0, K)[None, :]
    # The groups with the largest maxima, largest first; `least` is the last of them.
    tops += (pair * (end - begin) + rows - begin) * groups
    best = tl.full([R, K], LOWEST, tl.int32)
    where = tl.full([R, K], NOWHERE, tl.int32)
    least = tl.full([R], LOWEST, tl.int32)
    last = groups
    if CAUSAL:
        last = tl.minimum(groups, ((begin + (tl.program_id(1) + 1) * R - 1) // KEYS + 1) * (KEYS // GROUP))
    for first in range(0, last, CHUNK):
        g = first + tl.arange(0, CHUNK)[None, :]
        x = tl.load(tops[:, None] + g, here[:, None] & (g < last), 0.0)
        x = tl.where(g < last, _ordered(x), LOWEST)
        if tl.max((tl.max(x, 1) > least).to(tl.int32), 0) > 0:
            merged = tl.full([R, K], LOWEST, tl.int32)
            places = tl.full([R, K], NOWHERE, tl.int32)
            for j in tl.static_range(COUNT):
                least = tl.maximum(tl.max(x, 1), tl.max(best, 1))
                m = least[:, None]
                new = tl.min(tl.where(x == m, g, NOWHERE), 1)
                at = tl.minimum(new, tl.min(tl.where(best == m, where, NOWHERE), 1))[:, None]
                merged = tl.where(slot == j, m, merged)
                places = tl.where(slot == j, at, places)
                x = tl.where(g == at, LOWEST, x)
                best = tl.where(where == at, LOWEST, best)
            best = merged
            where = places
    # Their keys: those that one thread of `_pass` held.
    per: tl.constexpr = KEYS // GROUP
    g = where // per * KEYS + (where % per) // 4 * 64 + (where % 4) * 2
    g = tl.where(best == LOWEST, S, g)
    member = tl.arange(0, GROUP)
    member = member // 2 * 8 + member % 2
    columns = tl.reshape(g[:, :, None] + member[None, None, :], [R, K * GROUP])
    there = here[:, None] & (columns < S)
    q += sentence * qb + head * qh
    k += sentence * kb + (head // group) * kh
    # Some keys at a time, all channels of each: threads side by side read whole lines of the cache, each line once.
    PARTS: tl.constexpr = K * GROUP // TOGETHER
    c = tl.arange(0, CHANNELS)
    at = tl.minimum(rows, end - 1).to(tl.int64)[:, None] * qt + c[None, :]
    a = tl.load(q + at, (c < C)[None, :], 0.0).to(tl.float32)
    part = tl.arange(0, PARTS)[None, :, None]
    apart = tl.reshape(g, [R, PARTS, K // PARTS])
    s = tl.zeros([R, PARTS, TOGETHER], tl.float32)
    for n in tl.static_range(PARTS):
        some = tl.sum(tl.where(part == n, apart, 0), 1)
        some = tl.minimum(tl.reshape(some[:, :, None] + member[None, None, :], [R, TOGETHER]), S - 1)
        at = some.to(tl.int64)[:, :, None] * ks + c[None, None, :]
        key = tl.load(k + at, (c < C)[None, None, :], 0.0)
        s = tl.where(part == n, tl.sum(a[:, None, :] * key.to(tl.float32), 2)[:, None, :], s)
    s = tl.reshape(s, [R, K * GROUP])
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
    x = tl.where(there, _ordered(z), LOWEST)
    out = (pair * T + rows) * COUNT
    for j in tl.static_range(COUNT):
        largest = tl.max(x, 1)
        at = tl.min(tl.where(x == largest[:, None], columns, NOWHERE), 1)
        best_z = (largest ^ ((largest >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
        # Not >, which would hide what is not a number.
        none = (largest == LOWEST) | (best_z <= -1e29)
        tl.store(positions + out + j, tl.where(none, -1, at).to(tl.int64), here)
        tl.store(weights + out + j, tl.where(none, 0.0, tl.exp2(best_z)), here)
        x = tl.where(columns == at[:, None], LOWEST, x)


def together(K: int, channels: int) -> int:
    """Return how many keys of K groups are fetched at once: at least one group."""
    return min(K * GROUP, max(GROUP, FETCHED // channels))


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
        K = power_of_2(self.count)
        with on_device(lse):
            _look[(B * H, -(-(end - begin) // QUERIES))](
                given.q, given.k, lse, given.bias, given.mask, tops, self.positions, self.weights, H, T, S, begin, end,
                tops.shape[-1], *given.strides, given.group, given.factor, *given.compiled, self.count,
                K, QUERIES, CHUNK, given.sizes[1], together(K, given.sizes[1]), given.keys, GROUP, num_warps=1,
            )  # fmt: skip

    def top(self) -> Top:
        """Return what was found."""
        return Top(self.positions, self.weights, self.weights.sum(-1))
