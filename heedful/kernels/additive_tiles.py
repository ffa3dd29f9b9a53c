"""The two kernels that meet all T · S · A: scores there, gradients back; see `additive`.

Both work on Q = e^{2q} and K = e^{2k} (`additive_rows`): r = 1/(1 + QK) gives tanh(q + k) = 1 - 2r and its slope
4(r - r²). Two terms are put over one denominator, so that they share one reciprocal: its unit is eight times slower
than the one that multiplies. A program is one warp, which keeps a tile in registers and never waits for another.

Where Q or K was made smaller to fit into fp32 and the other side could tell (the bits of both say so), a block is
worked out from q and k themselves, with an exponential for every element: exact, and several times slower.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.kernels.launch import kernel, part

if TYPE_CHECKING:
    import triton.language as tl

__all__ = ["scores", "slopes"]


@part
def _reciprocal(x, FAST: tl.constexpr) -> tl.tensor:
    """1/x to one unit in the last place; for more than 2^126 it is 0.  Triton's own division takes several steps."""
    if FAST:  # noqa: SIM108  (Triton compiles the branch that is taken, and no other)
        y = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
    else:  # in the interpreter, which knows no assembler
        y = 1 / x
    return y


@part
def _far(one, other) -> tl.tensor:
    """Whether two sides need the slow way: bit 1 says that something was made smaller, bit 0 that something is low."""
    return ((one & (other << 1)) | (other & (one << 1))) & 2


@kernel("T", "S", "A", "per")
def scores(
    Q, K, v, bits_q, bits_k, e, T, S, A, per,
    FAST: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr, PAD: tl.constexpr, ROWS: tl.constexpr, BA: tl.constexpr,
) -> None:  # fmt: skip
    """e_tj = Σ_a v_a tanh(q_ta + k_ja).  Q (2, B, A', T'), K (2, B, A', S'), v (A',) -> e (P, B, T, S).

    Q[0] is e^{2q}, Q[1] q itself; each of the P parts sums over `per` blocks of a.
    """
    tiles = (T + BT - 1) // BT
    start, first = tl.program_id(0) % tiles * BT, tl.program_id(0) // tiles * BS
    b, piece = tl.program_id(1).to(tl.int64), tl.program_id(2)
    t, s = start + tl.arange(0, BT), first + tl.arange(0, BS)
    long_t, long_s, wide = (T + PAD - 1) // PAD * PAD, (S + PAD - 1) // PAD * PAD, (A + PAD - 1) // PAD * PAD
    blocks = wide // BA
    Q += b * wide * long_t + t
    K += b * wide * long_s + s
    beyond = tl.num_programs(1).to(tl.int64) * wide
    bits_q += (b * (long_t // ROWS) + start // ROWS) * blocks
    bits_k += (b * (long_s // ROWS) + first // ROWS) * blocks
    sums = tl.zeros([BT, BS], tl.float32)
    level = 0.0
    for block in range(piece * per, tl.minimum(piece * per + per, (A + BA - 1) // BA)):
        other = tl.load(bits_k + block)
        for i in tl.static_range(1, BS // ROWS):
            other |= tl.load(bits_k + i * blocks + block)
        at_q, at_k = Q + tl.cast(block * BA, tl.int64) * long_t, K + tl.cast(block * BA, tl.int64) * long_s
        end = tl.minimum(block * BA + BA, A)
        if _far(tl.load(bits_q + block), other) != 0:
            at_q += beyond * long_t
            at_k += beyond * long_s
            for a in range(block * BA, end):
                share = tl.load(v + a)
                x = tl.load(at_q)[:, None] + tl.load(at_k)[None, :]
                sums += share * _reciprocal(1 + tl.exp(2 * tl.minimum(x, 40.0, tl.PropagateNan.ALL)), FAST)
                level += share
                at_q += long_t
                at_k += long_s
        else:
            for a in range(block * BA, end, 2):
                share, share_1 = tl.load(v + a), tl.load(v + a + 1)
                d = tl.load(at_q)[:, None] * tl.load(at_k)[None, :] + 1
                d_1 = tl.load(at_q + long_t)[:, None] * tl.load(at_k + long_s)[None, :] + 1
                sums += (share * d_1 + share_1 * d) * _reciprocal(d * d_1, FAST)
                level += share + share_1
                at_q += 2 * long_t
                at_k += 2 * long_s
    row = (piece * tl.num_programs(1) + b) * T + t
    tl.store(e + row[:, None] * S + s[None, :], level - 2 * sums, (t < T)[:, None] & (s < S)[None, :])


@part
def _all_bits(bits, BA: tl.constexpr, PAD: tl.constexpr) -> tl.tensor:
    """The bits of all PAD columns that a program works on."""
    first = tl.program_id(1) * (PAD // BA)
    found = tl.load(bits + first)
    for i in tl.static_range(1, PAD // BA):
        found |= tl.load(bits + first + i)
    return found


@kernel("N", "M", "A")
def slopes(
    X, Y, v, bits_x, bits_y, de, dx, dv, N, M, A,
    FAST: tl.constexpr, BOTH: tl.constexpr, BN: tl.constexpr, PAD: tl.constexpr, ROWS: tl.constexpr, BA: tl.constexpr,
) -> None:  # fmt: skip
    """dx_na = 4 v_a Σ_m de_mn (r - r²), and -2 Σ de r for v.  X (2, B, N', A'), Y (2, B, M', A'), de (B, M', N').

    One side is asked about the other: q about k and, with de turned round, k about q.
    """
    start, b = tl.program_id(0) * BN, tl.program_id(2).to(tl.int64)
    n, a = start + tl.arange(0, BN), tl.program_id(1) * PAD + tl.arange(0, PAD)
    wide = tl.num_programs(1) * PAD
    blocks = wide // BA
    long_n, long_m = (N + PAD - 1) // PAD * PAD, (M + PAD - 1) // PAD * PAD
    X += (b * long_n + n[:, None]) * wide + a[None, :]
    Y += b * long_m * wide + a
    de += b * long_m * long_n + n
    beyond = tl.num_programs(2).to(tl.int64) * wide
    own = _all_bits(bits_x + (b * (long_n // ROWS) + start // ROWS) * blocks, BA, PAD)
    bits_y += b * (long_m // ROWS) * blocks
    known = tl.load(X)
    sums = tl.zeros([BN, PAD], tl.float32)
    bent = tl.zeros([BN, PAD], tl.float32)
    for begin in range(0, M, ROWS):
        at_y, at_de = Y + tl.cast(begin, tl.int64) * wide, de + tl.cast(begin, tl.int64) * long_n
        end = tl.minimum(begin + ROWS, M)
        if _far(own, _all_bits(bits_y + begin // ROWS * blocks, BA, PAD)) != 0:
            at_y += beyond * long_m
            for _ in range(begin, end):
                g = tl.load(at_de)[:, None]
                z = tl.load(X + beyond * long_n) + tl.load(at_y)[None, :]
                r = _reciprocal(1 + tl.exp(2 * tl.minimum(z, 40.0, tl.PropagateNan.ALL)), FAST)
                if BOTH:
                    bent += g * r
                sums += g * (r - r * r)
                at_y += wide
                at_de += long_n
        else:
            for _ in range(begin, end, 2):
                d = known * tl.load(at_y)[None, :] + 1
                d_1 = known * tl.load(at_y + wide)[None, :] + 1
                both = _reciprocal(d * d_1, FAST)
                r, r_1 = both * d_1, both * d
                g, g_1 = tl.load(at_de)[:, None], tl.load(at_de + long_n)[:, None]
                if BOTH:
                    bent += g * r
                    bent += g_1 * r_1
                sums += g * (r - r * r)
                sums += g_1 * (r_1 - r_1 * r_1)
                at_y += 2 * wide
                at_de += 2 * long_n
    share = tl.load(v + a)
    at = dx + (b * N + n[:, None]) * A + a[None, :]
    tl.store(at, (4 * share[None, :] * sums).to(dx.dtype.element_ty), (n < N)[:, None] & (a < A)[None, :])
    if BOTH:
        row = b * tl.num_programs(0) + tl.program_id(0)
        tl.store(dv + row * wide + a, -2 * tl.sum(bent, 0))
