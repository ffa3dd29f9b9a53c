"""Kernels that choose the next tokens of all slots: greedily, or K hypotheses of a beam.

`TokenSlots` and `BeamSlots` of `heedful.decoding.slot_decoder` are the reference: two launches do what takes twenty
operations there, or fifty with a beam. `_group_maxima` reads each logit once: a program takes a block of the
vocabulary, for one row, and writes the sum of exponentials, and the largest logit that is allowed of each group of
tokens. The N best continuations are in the N groups with the largest maxima: a program for each slot finds these, then
the continuations in them, and writes the records.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from heedful.fused.triton.launch import kernel, part, power_of_2

if TYPE_CHECKING:
    import triton.language as tl

BLOCK = 1024  # tokens of a program at least
BLOCKS = 8  # of a row at most
GROUP = 32  # tokens of a group at least
CANDIDATES = 8192  # groups of a slot, or tokens of its best groups, at most


class TokenRules(NamedTuple):
    """Which tokens are allowed: never `start` and `pad`, and not `end` before `least` tokens."""

    start: int
    pad: int
    end: int
    least: int


class SlotTensors(NamedTuple):
    """The tensors of all slots: last tokens (R,), positions and whether active (B,), forced tokens (B, T)."""

    y: Tensor
    t: Tensor
    active: Tensor
    forced: Tensor


class BeamTensors(NamedTuple):
    """What a beam has besides: scores (B, K), (B, n), divisors (T,), (B,), records (B, T, …), and parents (R,)."""

    live: Tensor
    done: Tensor
    divisors: Tensor
    limit_divisors: Tensor
    at: Tensor
    values: Tensor
    totals: Tensor
    picks: Tensor
    tops: Tensor
    parents: Tensor


@part
def _allowed(x, j, at, token, start, pad, end, least) -> tl.tensor:
    """Return logits x of tokens j with -∞ for forbidden tokens, and for NaN: a search for the largest needs numbers."""
    early = (at < least) & ((token < 0) | (token == end))
    forbidden = (j == start) | (j == pad) | ((j == end) & early)
    return tl.where((x == x) & (forbidden == 0), x, -float("inf"))


@kernel()
def _group_maxima(
    logits, t, forced, maxima, sums, V, K, T, groups, start, pad, end, least, G: tl.constexpr, SIZE: tl.constexpr
) -> None:  # fmt: skip
    r, block, blocks = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    j = block * SIZE + tl.arange(0, SIZE)
    x = tl.load(logits + r * V + j, j < V, -float("inf")).to(tl.float32)
    x = tl.where(j == start, -float("inf"), x)
    top = tl.max(tl.where(x == x, x, -float("inf")), 0)
    level = tl.where(top == -float("inf"), 0.0, top)
    place = r * blocks + block
    tl.store(sums + 2 * place, level)
    tl.store(sums + 2 * place + 1, tl.sum(tl.exp(x - level), 0))  # with NaN, it is NaN, and so is every score
    b = r // K
    at = tl.load(t + b)
    x = _allowed(x, j, at, tl.load(forced + b * T + at), start, pad, end, least)
    g = block * (SIZE // G) + tl.arange(0, SIZE // G)
    tl.store(maxima + r * groups + g, tl.max(tl.reshape(x, [SIZE // G, G]), 1), g < groups)


@part
def _log_sums(sums, row, blocks, inside, C: tl.constexpr) -> tl.tensor:
    """Return log Σ exp over the blocks of some rows.  row (N,) -> (N,)."""
    c = tl.arange(0, C)
    mask = inside[:, None] & (c < blocks)[None, :]
    place = 2 * (row[:, None] * blocks + c[None, :])
    levels = tl.load(sums + place, mask, -1e30)
    masses = tl.load(sums + place + 1, mask, 0.0)
    level = tl.max(levels, 1)
    mass = tl.sum(masses * tl.exp(levels - level[:, None]), 1)
    return level + tl.log(tl.where(inside, mass, 1.0))


@kernel()
def _choose_token(
    logits, maxima, sums, y, t, active, forced, chosen_record, value_record,
    V, T, groups, blocks, start, pad, end, least, G: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
) -> None:  # fmt: skip
    r = tl.program_id(0).to(tl.int64)
    one = tl.zeros([1], tl.int64)
    log_sum = tl.max(_log_sums(sums, r + one, blocks, one == 0, C), 0)
    at = tl.load(t + r)
    token = tl.load(forced + r * T + at)
    g = tl.arange(0, W)
    best = tl.argmax(tl.load(maxima + r * groups + g, g < groups, -float("inf")), 0)
    j = tl.minimum(best, groups - 1) * G + tl.arange(0, G)
    x = tl.load(logits + r * V + j, j < V, -float("inf")).to(tl.float32)
    x = _allowed(x, j, at, token, start, pad, end, least)
    chosen = tl.minimum(tl.minimum(best, groups - 1) * G + tl.argmax(x, 0), V - 1).to(tl.int64)
    token = tl.where(token < 0, chosen, token)
    value = tl.load(logits + r * V + token).to(tl.float32) - log_sum
    tl.store(chosen_record + r * T + at, chosen)
    tl.store(value_record + r * T + at, tl.where(token == start, -float("inf"), value))
    going = tl.load(active + r).to(tl.int64)
    tl.store(y + r, token)
    tl.store(t + r, at + going)
    tl.store(active + r, tl.where(token == end, 0, going).to(tl.uint8))


@kernel()
def _choose_beam(
    logits, maxima, sums, y, t, active, forced,
    live, done, divisors, limit_divisors, at_record, value_record, total_record, pick_record, top_record, parents,
    V, T, groups, blocks, start, pad, end, least, K: tl.constexpr, n: tl.constexpr,
    PK: tl.constexpr, PN: tl.constexpr, PD: tl.constexpr, G: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
) -> None:  # fmt: skip
    N: tl.constexpr = 2 * K
    b = tl.program_id(0).to(tl.int64)
    at = tl.load(t + b)
    forced_token = tl.load(forced + b * T + at)
    k, i = tl.arange(0, PK), tl.arange(0, PN)
    rows = b * K + k
    inside = k < K
    log_sum = _log_sums(sums, rows, blocks, inside, C)
    # NaN where any of the K is: added to all scores at the end, since the search needs numbers.
    broken = tl.sum(tl.where(inside, log_sum * 0.0, 0.0), 0)
    log_sum = tl.where(log_sum == log_sum, log_sum, 0.0)
    before = tl.load(live + rows, inside, -float("inf"))
    before = tl.where(before == before, before, -float("inf"))
    record = b * T + at
    # The best N groups of all hypotheses.
    g = tl.arange(0, W)
    mask = inside[:, None] & (g < groups)[None, :]
    value = tl.load(maxima + rows[:, None] * groups + g[None, :], mask, -float("inf")) - log_sum[:, None]
    tl.store(top_record + record * K + k, tl.max(value, 1), inside)
    total = tl.where(inside[:, None], value + before[:, None], -float("inf"))
    total = tl.reshape(total, [PK * W])
    index = tl.arange(0, PK * W)
    parent, group, there = tl.zeros([PN], tl.int32), tl.zeros([PN], tl.int32), tl.zeros([PN], tl.int32)
    for number in range(N):
        top, which = tl.max(total, 0, return_indices=True)
        this = i == number
        parent = tl.where(this, tl.minimum(which // W, K - 1), parent)
        group = tl.where(this, which % W, group)
        there = tl.where(this, (top > -float("inf")).to(tl.int32), there)
        total = tl.where(index == which, -float("inf"), total)
    # Their tokens; where a token is forced, it is the only one of each hypothesis.
    free = forced_token < 0
    parent = tl.where(free, parent, tl.minimum(i, K - 1))
    column = tl.arange(0, G)
    token = tl.where(free, group[:, None] * G + column[None, :], forced_token)  # (PN, G)
    from_row = parent[:, None] == k[None, :]
    own_sum = tl.sum(tl.where(from_row, log_sum[None, :], 0.0), 1)
    own_before = tl.sum(tl.where(from_row, before[None, :], 0.0), 1)
    mask = tl.where(free, (there > 0)[:, None] & (token < V), (i < K)[:, None] & (column == 0)[None, :])
    x = tl.load(logits + (b * K + parent)[:, None] * V + token, mask, -float("inf")).to(tl.float32)
    x = tl.where(free, _allowed(x, token, at, forced_token, start, pad, end, least), x)
    x = tl.where((x == x) & (token != start), x, -float("inf"))
    value = tl.reshape(x - own_sum[:, None], [PN * G])
    total = tl.reshape((x - own_sum[:, None]) + own_before[:, None], [PN * G])
    index = tl.arange(0, PN * G)
    totals = tl.full([PN], -float("inf"), tl.float32)
    found_values = tl.full([PN], -float("inf"), tl.float32)
    found_tokens, found_parents = tl.zeros([PN], tl.int64), tl.zeros([PN], tl.int64)
    for number in range(N):
        top, which = tl.max(total, 0, return_indices=True)
        this, here = i == number, index == which
        place = i == which // G
        first = tl.sum(tl.where(place, group, 0), 0) * G + which % G
        totals = tl.where(this, top, totals)
        found_values = tl.where(this, tl.sum(tl.where(here, value, 0.0), 0), found_values)
        chosen = tl.where(free, tl.minimum(first, V - 1), forced_token)
        found_tokens = tl.where(this, chosen.to(tl.int64), found_tokens)
        found_parents = tl.where(this, tl.sum(tl.where(place, parent, 0), 0).to(tl.int64), found_parents)
        total = tl.where(here, -float("inf"), total)
    tl.store(at_record + record * N + i, found_parents * V + found_tokens, i < N)
    tl.store(value_record + record * N + i, found_values, i < N)
    tl.store(total_record + record * N + i, totals + broken, i < N)
    ended = found_tokens == end
    # The first K that do not end go on, best first.
    earlier = (i[None, :] < i[:, None]) & ((i < N) & (found_tokens != end))[None, :]
    rank = tl.sum(earlier.to(tl.int32), 1)
    taken = (rank[None, :] == k[:, None]) & ((i < N) & (found_tokens != end))[None, :]
    there = tl.sum(taken.to(tl.int32), 1) > 0
    picks = tl.sum(tl.where(taken, i[None, :], 0), 1)
    next_live = tl.sum(tl.where(taken, totals[None, :], 0.0), 1)
    next_live = tl.where(there, next_live, -float("inf")) + broken
    tl.store(pick_record + record * K + k, picks, inside)
    tl.store(live + rows, next_live, inside)
    tl.store(y + rows, tl.sum(tl.where(taken, found_tokens[None, :], 0), 1), inside)
    tl.store(parents + rows, b * K + tl.sum(tl.where(taken, found_parents[None, :], 0), 1), inside)
    # The best n of those finished before and now.
    new = tl.where(ended & (i < K), totals / tl.load(divisors + at), -float("inf"))
    d = tl.arange(0, PD)
    old = tl.load(done + b * n + d, d < n, -float("inf"))
    last = -float("inf")
    for number in tl.static_range(n):
        high, low = tl.max(new, 0), tl.max(old, 0)
        last = tl.maximum(high, low)
        tl.store(done + b * n + number, last)
        new = tl.where(i == tl.where(high > low, tl.argmax(new, 0), -1), -float("inf"), new)
        old = tl.where(d == tl.where(high > low, -1, tl.argmax(old, 0)), -float("inf"), old)
    first = tl.sum(tl.where(k == 0, next_live, 0.0), 0)
    going = tl.load(active + b).to(tl.int64)
    tl.store(t + b, at + going)
    tl.store(active + b, tl.where(last < first / tl.load(limit_divisors + b), going, 0).to(tl.uint8))


@kernel("steps")
def _follow_back(
    at_record, value_record, pick_record, slots, order, tokens, values, parents, V, T, K, n, steps
) -> None:  # fmt: skip
    f, i = tl.program_id(0).to(tl.int64), tl.program_id(1)
    first = tl.load(slots + f) * T
    last = tl.load(order + f * n + i)
    end, one = last // K, last % K
    out = (f * n + i) * steps
    tl.store(parents + f * n + i, tl.load(at_record + (first + end) * 2 * K + one) // V)
    for back in range(0, end + 1):
        t = end - back
        record = (first + t) * 2 * K + one
        place = tl.load(at_record + record)
        tl.store(tokens + out + t, place % V)
        tl.store(values + out + t, tl.load(value_record + record))
        one = tl.load(pick_record + (first + t - 1) * K + place // V, t > 0, 0)


def follow_back(beam: BeamTensors, slots: Tensor, order: Tensor, tokens: Tensor, values: Tensor, V: int) -> Tensor:
    """Write the tokens and log-probabilities (F, n, steps) of finished hypotheses; return their last parents (F, n).

    `order` (F, n) is where each ended, step · K + continuation.
    """
    (F, n, steps), (_, T, K) = tokens.shape, beam.picks.shape
    parents = torch.empty_like(order)
    with torch.cuda.device_of(order):
        _follow_back[(F, n)](
            beam.at, beam.values, beam.picks, slots, order, tokens, values, parents, V, T, K, n, steps, num_warps=1
        )
    return parents


class _Groups(NamedTuple):
    """The largest logits of groups of tokens, (R, groups), and for each block a level and a sum, (R, blocks, 2)."""

    maxima: Tensor
    sums: Tensor


def _group(K: int, V: int) -> int:
    """Return the size of a group, so that a program can choose among those of K hypotheses; 0 if there is none."""
    size = GROUP
    while power_of_2(K) * power_of_2(-(-V // size)) > CANDIDATES:
        size *= 2
    return size if power_of_2(2 * K) * size <= CANDIDATES else 0


def fits(K: int, V: int, n: int = 1) -> bool:
    """Whether a program can choose among the continuations of K hypotheses, of which the best n are kept."""
    return n <= 2 * K and _group(K, V) > 0


def _find(logits: Tensor, slots: SlotTensors, rules: TokenRules, group: int) -> _Groups:
    R, V = logits.shape
    size = max(BLOCK, group, power_of_2(-(-V // BLOCKS)))
    groups, blocks = -(-V // group), -(-V // size)
    maxima = torch.empty(R, groups, device=logits.device)
    sums = torch.empty(R, blocks, 2, device=logits.device)
    _group_maxima[(R, blocks)](
        logits, slots.t, slots.forced, maxima, sums, V, R // len(slots.t), slots.forced.shape[1], groups, *rules,
        group, size, num_warps=2 if size <= BLOCK else 8,
    )  # fmt: skip
    return _Groups(maxima, sums)


def choose_token(logits: Tensor, slots: SlotTensors, chosen: Tensor, values: Tensor, rules: TokenRules) -> None:
    """Take the most probable token of each slot; record it and its log-probability.  logits (B, V), records (B, T)."""
    V, T = logits.shape[1], slots.forced.shape[1]
    group = _group(1, V)
    with torch.cuda.device_of(logits):
        found = _find(logits, slots, rules, group)
        groups, blocks = found.maxima.shape[1], found.sums.shape[1]
        _choose_token[(len(slots.t),)](
            logits, *found, slots.y, slots.t, slots.active.view(torch.uint8), slots.forced, chosen, values,
            V, T, groups, blocks, *rules, group, power_of_2(groups), power_of_2(blocks), num_warps=1,
        )  # fmt: skip


def choose_beam(logits: Tensor, slots: SlotTensors, beam: BeamTensors, rules: TokenRules) -> None:
    """Continue K hypotheses of each slot by the best tokens, and record them.  logits (B·K, V)."""
    V, T, (_, K), n = logits.shape[1], slots.forced.shape[1], beam.live.shape, beam.done.shape[1]
    group = _group(K, V)
    with torch.cuda.device_of(logits):
        found = _find(logits, slots, rules, group)
        groups, blocks = found.maxima.shape[1], found.sums.shape[1]
        sizes = (power_of_2(K), power_of_2(2 * K), power_of_2(n), group, power_of_2(groups), power_of_2(blocks))
        _choose_beam[(len(slots.t),)](
            logits, *found, slots.y, slots.t, slots.active.view(torch.uint8), slots.forced, *beam,
            V, T, groups, blocks, *rules, K, n, *sizes, num_warps=4,
        )  # fmt: skip
