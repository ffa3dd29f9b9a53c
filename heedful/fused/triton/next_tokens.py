"""Kernels that choose the next tokens of all slots: greedily, or K hypotheses of a beam.

`TokenSlots` and `BeamSlots` of `heedful.decoding.slot_decoder` are the reference: two launches do what takes twenty
operations there, or fifty with a beam. `_candidates` reads each logit once: a program takes a block of the vocabulary,
for one row, and writes the sum of exponentials and the N best tokens that are allowed. Then a program for each slot
sums up the blocks, chooses, and writes the records.
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
CANDIDATES = 4096  # of a slot at most: with more, the kernel takes ten seconds to compile


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


@kernel()
def _candidates(
    logits, t, forced, values, tokens, sums, V, K, T, start, pad, end, least, N: tl.constexpr, SIZE: tl.constexpr
) -> None:  # fmt: skip
    r, block, blocks = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    i = tl.arange(0, SIZE)
    j = block * SIZE + i
    x = tl.load(logits + r * V + j, j < V, -float("inf")).to(tl.float32)
    x = tl.where(j == start, -float("inf"), x)
    number = x == x
    top = tl.max(tl.where(number, x, -float("inf")), 0)
    level = tl.where(top == -float("inf"), 0.0, top)
    place = r * blocks + block
    tl.store(sums + 2 * place, level)
    tl.store(sums + 2 * place + 1, tl.sum(tl.exp(x - level), 0))
    # NaN is in the sum, and so in every score; a search for the largest needs numbers.
    x = tl.where(number & (j != pad), x, -float("inf"))
    b = r // K
    at = tl.load(t + b)
    token = tl.load(forced + b * T + at)
    early = (at < least) & ((token < 0) | (token == end))
    x = tl.where((j == end) & early, -float("inf"), x)
    for n in tl.static_range(N):
        which = tl.argmax(x, 0)
        tl.store(values + place * N + n, tl.max(x, 0))
        tl.store(tokens + place * N + n, tl.minimum(block * SIZE + which, V - 1))
        x = tl.where(i == which, -float("inf"), x)


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
    logits, values, tokens, sums, y, t, active, forced, chosen_record, value_record,
    V, T, blocks, start, end, C: tl.constexpr,
) -> None:  # fmt: skip
    r = tl.program_id(0).to(tl.int64)
    one = tl.zeros([1], tl.int64)
    log_sum = tl.max(_log_sums(sums, r + one, blocks, one == 0, C), 0)
    c = tl.arange(0, C)
    best = tl.load(values + r * blocks + c, c < blocks, -float("inf"))
    which = tl.minimum(tl.argmax(best, 0), blocks - 1)
    chosen = tl.load(tokens + r * blocks + which)
    at = tl.load(t + r)
    token = tl.load(forced + r * T + at)
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
    logits, values, tokens, sums, y, t, active, forced,
    live, done, divisors, limit_divisors, at_record, value_record, total_record, pick_record, top_record, parents,
    V, T, blocks, start, end, K: tl.constexpr, n: tl.constexpr,
    PK: tl.constexpr, PN: tl.constexpr, PD: tl.constexpr, W: tl.constexpr, C: tl.constexpr,
) -> None:  # fmt: skip
    N: tl.constexpr = 2 * K
    b = tl.program_id(0).to(tl.int64)
    at = tl.load(t + b)
    forced_token = tl.load(forced + b * T + at)
    k, w = tl.arange(0, PK), tl.arange(0, W)
    rows = b * K + k
    inside = k < K
    log_sum = _log_sums(sums, rows, blocks, inside, C)
    # NaN where any of the K is: added to all scores at the end, since the search needs numbers.
    broken = tl.sum(tl.where(inside, log_sum * 0.0, 0.0), 0)
    log_sum = tl.where(log_sum == log_sum, log_sum, 0.0)
    before = tl.load(live + rows, inside, -float("inf"))
    before = tl.where(before == before, before, -float("inf"))
    width = blocks * N
    mask = inside[:, None] & (w < width)[None, :]
    place = rows[:, None] * width + w[None, :]
    value = tl.load(values + place, mask, -float("inf")) - log_sum[:, None]
    token = tl.load(tokens + place, mask, 0)
    record = b * T + at
    tl.store(top_record + record * K + k, tl.max(value, 1), inside)
    # Where a token is forced, it is the only candidate of each hypothesis.
    only = tl.where(forced_token < 0, 0, forced_token)
    score = tl.load(logits + rows * V + only, inside, -float("inf")).to(tl.float32) - log_sum
    score = tl.where((only != start) & (score == score), score, -float("inf"))
    alone = tl.where((w == 0)[None, :] & inside[:, None], score[:, None], -float("inf"))
    value = tl.where(forced_token < 0, value, alone)
    token = tl.where(forced_token < 0, token, only)
    total = value + before[:, None]
    total = tl.reshape(tl.where(inside[:, None], total, -float("inf")), [PK * W])
    value, token = tl.reshape(value, [PK * W]), tl.reshape(token, [PK * W])
    index, i = tl.arange(0, PK * W), tl.arange(0, PN)
    totals = tl.full([PN], -float("inf"), tl.float32)
    found_values = tl.full([PN], -float("inf"), tl.float32)
    found_tokens, found_parents = tl.zeros([PN], tl.int64), tl.zeros([PN], tl.int64)
    for number in tl.static_range(N):
        which = tl.argmax(total, 0)
        here, this = index == which, i == number
        totals = tl.where(this, tl.max(total, 0), totals)
        found_values = tl.where(this, tl.sum(tl.where(here, value, 0.0), 0), found_values)
        found_tokens = tl.where(this, tl.sum(tl.where(here, token, 0), 0), found_tokens)
        found_parents = tl.where(this, tl.minimum(which // W, K - 1), found_parents)
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


class _Candidates(NamedTuple):
    """The best tokens of each block: scores and tokens (R, blocks, N), and for each block a level and a sum."""

    values: Tensor
    tokens: Tensor
    sums: Tensor
    blocks: int


def _block(V: int) -> int:
    """Return the number of tokens of a block."""
    return max(BLOCK, power_of_2(-(-V // BLOCKS)))


def fits(K: int, V: int, n: int = 1) -> bool:
    """Whether a program can choose among the candidates of K hypotheses, of which the best n are kept."""
    return n <= 2 * K and (K == 1 or power_of_2(K) * power_of_2(2 * K * -(-V // _block(V))) <= CANDIDATES)


def _find(logits: Tensor, slots: SlotTensors, rules: TokenRules, N: int) -> _Candidates:
    (R, V), size = logits.shape, _block(logits.shape[1])
    blocks = -(-V // size)
    values = torch.empty(R, blocks, N, device=logits.device)
    tokens = torch.empty(R, blocks, N, dtype=torch.long, device=logits.device)
    sums = torch.empty(R, blocks, 2, device=logits.device)
    _candidates[(R, blocks)](
        logits, slots.t, slots.forced, values, tokens, sums, V, R // len(slots.t), slots.forced.shape[1],
        rules.start, rules.pad, rules.end, rules.least, N, size, num_warps=4 if size <= BLOCK else 8,
    )  # fmt: skip
    return _Candidates(values, tokens, sums, blocks)


def choose_token(logits: Tensor, slots: SlotTensors, chosen: Tensor, values: Tensor, rules: TokenRules) -> None:
    """Take the most probable token of each slot; record it and its log-probability.  logits (B, V), records (B, T)."""
    V, T = logits.shape[1], slots.forced.shape[1]
    with torch.cuda.device_of(logits):
        best = _find(logits, slots, rules, 1)
        _choose_token[(len(slots.t),)](
            logits, *best[:3], slots.y, slots.t, slots.active.view(torch.uint8), slots.forced, chosen, values,
            V, T, best.blocks, rules.start, rules.end, power_of_2(best.blocks), num_warps=1,
        )  # fmt: skip


def choose_beam(logits: Tensor, slots: SlotTensors, beam: BeamTensors, rules: TokenRules) -> None:
    """Continue K hypotheses of each slot by the best tokens, and record them.  logits (B·K, V)."""
    V, T, (_, K), n = logits.shape[1], slots.forced.shape[1], beam.live.shape, beam.done.shape[1]
    with torch.cuda.device_of(logits):
        best = _find(logits, slots, rules, 2 * K)
        sizes = (power_of_2(K), power_of_2(2 * K), power_of_2(n), power_of_2(2 * K * best.blocks))
        _choose_beam[(len(slots.t),)](
            logits, *best[:3], slots.y, slots.t, slots.active.view(torch.uint8), slots.forced, *beam,
            V, T, best.blocks, rules.start, rules.end, K, n, *sizes, power_of_2(best.blocks), num_warps=4,
        )  # fmt: skip
