"""What additive attention does row by row: exponentials before the scores, the softmax after them, and its gradient.

Between kernels, axes are padded to a multiple of PAD, so that the kernels of `additive_tiles` need no masks.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.kernels.launch import kernel

if TYPE_CHECKING:
    import triton.language as tl

__all__ = ["exponentials", "softmax", "unsoftmax"]


@kernel("N", "A")
def exponentials(
    x, seen, X, bits, N, A,
    SOME: tl.constexpr, TURN: tl.constexpr, PAD: tl.constexpr, ROWS: tl.constexpr, BA: tl.constexpr,
) -> None:  # fmt: skip
    """X[0] = e^{2x}, X[1] = x.  x (B, N, A), seen (B, N) -> X (2, B, N', A'), or (2, B, A', N') turned, bits.

    The product of two sides has to stay under 2^100 for v/(1 + QK) + v'/(1 + Q'K') to be right over one denominator:
    should that be too large to be inverted, both factors are at least 2^26, and both terms nothing beside 1. So X is
    held under e^34.6, x under 17.3. Nobody can tell where the other side is above -7.6: tanh(9.7) is 1 already.
    bits (B, N'/ROWS, A'/BA): bit 1 says that an x of the block was too high, bit 0 that one is low. What nobody sees
    is 0, whatever it holds.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    a = tl.program_id(1) * BA + tl.arange(0, BA)
    b = tl.program_id(2).to(tl.int64)
    there = (rows < N)[:, None] & (a < A)[None, :]
    if SOME:
        there &= (tl.load(seen + b * N + rows, rows < N, 0) != 0)[:, None]
    known = tl.load(x + (b * N + rows[:, None]) * A + a[None, :], there, 0.0).to(tl.float32)
    high, low = tl.max((known > 17.3).to(tl.int32)), tl.max((known < -7.6).to(tl.int32))
    held = tl.where(known > 17.3, 17.3, known)  # NaN stays
    held = 2 * tl.where(held < -44, -44.0, held)
    # 2x = n ln 2 + rest and e^{2x} = 2^n e^rest, with all digits: the first part of ln 2 is short, n times it is exact.
    n = tl.floor(held * 1.4426950408889634 + 0.5)
    rest = held - n * 0.693359375 + n * 2.12194440e-4
    power = tl.exp2(n) * tl.exp(rest)
    long, wide = (N + PAD - 1) // PAD * PAD, (A + PAD - 1) // PAD * PAD
    beyond = tl.num_programs(2).to(tl.int64) * long * wide
    if TURN:
        at = X + (b * wide + a[:, None]) * long + rows[None, :]
        tl.store(at, tl.trans(power))
        tl.store(at + beyond, tl.trans(known))
    else:
        at = X + (b * long + rows[:, None]) * wide + a[None, :]
        tl.store(at, power)
        tl.store(at + beyond, known)
    tl.store(bits + (b * (long // ROWS) + tl.program_id(0)) * (wide // BA) + tl.program_id(1), 2 * high + low)


@kernel("T", "S", "N", "parts", "keep_b", "keep_t", "keep_s")
def softmax(
    e, keep, weights, T, S, N, parts, keep_b, keep_t, keep_s, SOME: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr
) -> None:  # fmt: skip
    """α = softmax over what may be looked at, zeros where that is nothing.  e (parts, N = B·T, S) -> weights (N, S).

    With one part, weights may be e itself.
    """
    rows = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    at = rows[:, None] * S
    keep += (rows // T * keep_b + rows % T * keep_t)[:, None]
    top = tl.full([R], -float("inf"), tl.float32)
    mass = tl.zeros([R], tl.float32)
    for begin in range(0, S, BLOCK):
        c = begin + tl.arange(0, BLOCK)[None, :]
        there = (rows < N)[:, None] & (c < S)
        x = tl.load(e + at + c, there, 0.0)
        for i in range(1, parts):
            x += tl.load(e + i * N * S + at + c, there, 0.0)
        if SOME:
            there &= tl.load(keep + c * keep_s, there, 0) != 0
        x = tl.where(there, x, -float("inf"))
        higher = tl.maximum(top, tl.max(x, 1))
        # Of -inf nothing can be subtracted.
        ground = tl.where(higher == -float("inf"), 0.0, higher)
        mass = mass * tl.exp(top - ground) + tl.sum(tl.exp(x - ground[:, None]), 1)
        top = higher
    ground = tl.where(top == -float("inf"), 0.0, top)[:, None]
    over = (1 / tl.where(mass == 0, 1.0, mass))[:, None]
    for begin in range(0, S, BLOCK):
        c = begin + tl.arange(0, BLOCK)[None, :]
        inside = (rows < N)[:, None] & (c < S)
        x = tl.load(e + at + c, inside, 0.0)
        for i in range(1, parts):
            x += tl.load(e + i * N * S + at + c, inside, 0.0)
        there = inside
        if SOME:
            there = inside & (tl.load(keep + c * keep_s, inside, 0) != 0)
        tl.store(weights + at + c, tl.where(there, tl.exp(x - ground) * over, 0.0), inside)


@kernel("T", "S")
def unsoftmax(weights, slope, de, turned, T, S, PAD: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr) -> None:
    """de = α(dα - Σ_j α_j dα_j), both ways round.  weights, slope (B, T, S) -> de (B, T', S'), turned (B, S', T').

    Of the padding, only the blocks that T and S end in are written: nothing else of it is read.
    """
    rows, b = tl.program_id(0) * R + tl.arange(0, R), tl.program_id(1).to(tl.int64)
    at = ((b * T + rows) * S)[:, None]
    long_t, long_s = (T + PAD - 1) // PAD * PAD, (S + PAD - 1) // PAD * PAD
    along = tl.zeros([R], tl.float32)
    for begin in range(0, S, BLOCK):
        c = begin + tl.arange(0, BLOCK)
        there = (rows < T)[:, None] & (c < S)[None, :]
        w = tl.load(weights + at + c[None, :], there, 0.0)
        along += tl.sum(w * tl.load(slope + at + c[None, :], there, 0.0), 1)
    for begin in range(0, S, BLOCK):
        c = begin + tl.arange(0, BLOCK)
        there = (rows < T)[:, None] & (c < S)[None, :]
        w = tl.load(weights + at + c[None, :], there, 0.0)
        d = w * (tl.load(slope + at + c[None, :], there, 0.0) - along[:, None])
        tl.store(de + (b * long_t + rows[:, None]) * long_s + c[None, :], d)
        tl.store(turned + (b * long_s + c[:, None]) * long_t + rows[None, :], tl.trans(d))
