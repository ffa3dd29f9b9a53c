"""Bahdanau's attention for all T queries in one call, without allocating (B, T, S, A).

tanh(q + k) = 1 - 2/(1 + e^{2q} e^{2k}): the exponentials are computed once for each row (`exponentials`), T + S of them
instead of T · S. Each of the T · S · A elements then takes a product, a sum and half a reciprocal (`scores`, and
`score_gradients`, which computes it again in the backward pass). The weights (B, T, S) are the largest tensor. Between
kernels, axes are padded to a multiple of PAD, so that `scores` and `score_gradients` need no masks.

Both use Q = e^{2q} and K = e^{2k}: r = 1/(1 + QK) gives tanh(q + k) = 1 - 2r and its derivative 4(r - r²). Two terms
are brought over one denominator and share one reciprocal, which is eight times slower than a product. A program is one
warp, with its tile in registers. Where Q or K was clamped to fit into fp32 and this could change the result (the bits
of both mark it), a block is computed from q and k, with an exponential for every element: exact, and several times
slower.

The kernels compute the weights and their gradients; the context is a matrix product of PyTorch's. To `torch.compile`
the kernels are two opaque operations. The definition is `heedful.attention.additive_attend`.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from heedful import attention
from heedful.attention import kept_by_any, masked_softmax
from heedful.errors import ShapeError, check_shapes
from heedful.fused.triton.launch import interpreted, kernel, part
from heedful.fused.triton.policy import path

if TYPE_CHECKING:
    import triton.language as tl


KINDS = (torch.float32, torch.bfloat16, torch.float16)
FLOATS = (torch.float64, *KINDS)
PAD = 128  # T, S and A are padded to multiples of it, between kernels
ROWS, BA = 32, 64  # rows and columns of a block with one entry in `bits`
TILES = ((16, 128), (32, 64))  # (T, S) of a program of the scores: 64 sums for each thread of its one warp
BN = 8  # rows of a program in the backward pass
PROGRAMS = 2112  # that fit on 132 multiprocessors; with fewer, the sum over a is split into parts
MOST = 65_535  # sentences: the limit of a grid axis


def additive_attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    values: Tensor,
    keep: Tensor | None = None,
    how: str = "auto",
) -> tuple[Tensor, Tensor]:
    """Return c and α.  q (B, T, A), k (B, S, A), v (A,), values (B, S, D) -> (B, T, D), (B, T, S).

    `heedful.attention.additive_attend` is the definition, with the same `keep`. A row with nothing to attend to gives
    zeros, and a position that no query may attend to may hold anything, NaN too. Weights are fp32 (float64 if any input
    is), the context has the values' type; autocast changes neither.

    `how`: "kernel" for the kernels, which never allocate (B, T, S, A), "reference" for the definition, "auto" for the
    kernels where `policy.path` selects them.
    """
    sizes = check_shapes(q=(q, "B T A"), k=(k, "B S A"), v=(v, "A"), values=(values, "B S D"))
    tensors = {"q": q, "k": k, "v": v, "values": values}
    for name, x in tensors.items():
        if x.dtype not in FLOATS:
            raise ShapeError(f"{name} is of {x.dtype}, expected one of {', '.join(map(str, FLOATS))}")
    keep = expand_mask(tensors, keep, [sizes[axis] for axis in "BTS"])
    if (how == "auto" and unfit(q, k, v)) or path(q.device, how).way != "kernel":
        return attention.additive_attend(q, k, v, values, keep)
    weights = additive_weights(q, k, v, keep)
    if keep is not None:
        values = values.masked_fill(~kept_by_any(keep)[..., None], 0)
    with torch.autocast(values.device.type, enabled=False):
        return weights.to(values.dtype) @ values, weights


kernel_attend = partial(additive_attend, how="kernel")


def additive_weights(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None = None) -> Tensor:
    """Return α, the softmax over j of v · tanh(q_t + k_j), by the kernels.

    q (B, T, A), k (B, S, A), v (A,), keep (B, S) or (B, T, S) -> (B, T, S) of fp32.
    """
    sizes = check_shapes(q=(q, "B T A"), k=(k, "B S A"), v=(v, "A"))
    keep = expand_mask({"q": q, "k": k, "v": v}, keep, [sizes[axis] for axis in "BTS"])
    if problem := unfit(q, k, v):
        raise ShapeError(problem)
    if not q.is_cuda and not interpreted():
        raise ShapeError(f"the kernels need a CUDA device; q is on {q.device}")
    if torch.compiler.is_compiling():
        return torch.ops.heedful.additive_weights(q, k, v, keep)  # type: ignore[no-any-return]
    return _Weights.apply(q, k, v, keep)  # type: ignore[no-any-return]


def unfit(q: Tensor, k: Tensor, v: Tensor) -> str:
    """Return why the kernels cannot take these tensors, or ""."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dtype not in KINDS:
            return f"{name} is of {x.dtype}; the kernels take {', '.join(map(str, KINDS))}"
    if q.shape[0] > MOST:
        return f"the kernels take at most {MOST:,} sentences in a batch, got {q.shape[0]:,}"
    return ""


def expand_mask(tensors: dict[str, Tensor], keep: Tensor | None, shape: Sequence[int]) -> Tensor | None:
    """Check the devices and the mask; return the mask expanded to (B, T, S)."""
    places = {name: x.device for name, x in [*tensors.items(), *([] if keep is None else [("keep", keep)])]}
    if len(set(places.values())) > 1:
        raise ShapeError(
            f"all tensors must be on one device, got {', '.join(f'{n} on {d}' for n, d in places.items())}"
        )
    if keep is None:
        return None
    if keep.dtype != torch.bool:
        raise ShapeError(f"keep is of {keep.dtype}, expected torch.bool, True for positions to attend to")
    whole = keep[:, None] if keep.dim() == 2 else keep
    if whole.dim() != 3 or any(size not in (1, full) for size, full in zip(whole.shape, shape, strict=True)):
        raise ShapeError(f"keep has shape {tuple(keep.shape)}, expected (B, S) or (B, T, S) for scores {tuple(shape)}")
    return whole.expand(*shape)


def _padded(n: int) -> int:
    return -(-n // PAD) * PAD


def _exponentials(x: Tensor, kept: Tensor | None, transpose: bool) -> tuple[Tensor, Tensor]:
    """Return e^{2x} and x, padded, and their bits.  x (B, N, A) -> (2, B, N', A') or transposed, (B, …)."""
    B, N, A = x.shape
    long, wide = _padded(N), _padded(A)
    X = x.new_empty(2, B, *((wide, long) if transpose else (long, wide)), dtype=torch.float32)
    bits = x.new_empty(B, long // ROWS, wide // BA, dtype=torch.int32)
    kept = None if kept is None else kept.contiguous()
    grid = (long // ROWS, wide // BA, B)
    mask = bits if kept is None else kept
    exponentials[grid](x.contiguous(), mask, X, bits, N, A, kept is not None, transpose, PAD, ROWS, BA, num_warps=4)
    return X, bits


def _pad_v(v: Tensor) -> Tensor:
    """Return v in fp32, padded with zeros.  (A,) -> (A',)."""
    A = v.shape[0]
    return torch.nn.functional.pad(v.float(), (0, _padded(A) - A)) if A % PAD else v.float().contiguous()


def _scores(q: Tensor, k: Tensor, v: Tensor, kept: Tensor | None) -> Tensor:
    """Return the scores as parts to be summed.  q (B, T, A), k (B, S, A), v (A,) -> (P, B, T, S)."""
    (B, T, A), S = q.shape, k.shape[1]
    Q, bits_q = _exponentials(q, None, True)
    K, bits_k = _exponentials(k, kept, True)
    BT, BS = TILES[0] if TILES[1][1] < S else TILES[1]
    grid = -(-T // BT) * -(-S // BS)
    blocks = -(-A // BA)
    per = -(-blocks // min(blocks, max(1, PROGRAMS // (grid * B))))
    parts = -(-blocks // per)
    e = q.new_empty(parts, B, T, S, dtype=torch.float32)
    scores[(grid, B, parts)](
        Q, K, _pad_v(v), bits_q, bits_k, e, T, S, A, per, not interpreted(), BT, BS, PAD, ROWS, BA,
        num_warps=1, maxnreg=128,
    )  # fmt: skip
    return e


def _forward(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
    (B, T, A), S = q.shape, k.shape[1]
    if not B * T * S * A:
        return masked_softmax(q.new_zeros(B, T, S, dtype=torch.float32), keep)  # all scores are 0
    with torch.cuda.device_of(q):
        e = _scores(q, k, v, None if keep is None else kept_by_any(keep))
        parts = e.shape[0]
        weights = e[0] if parts == 1 else torch.empty_like(e[0])
        strides = (0, 0, 0) if keep is None else keep.stride()
        mask = e if keep is None else keep
        grid = (-(-B * T // 8),)
        softmax[grid](e, mask, weights, T, S, B * T, parts, *strides, keep is not None, 8, 128, num_warps=4)
    return weights


def _backward(
    q: Tensor, k: Tensor, v: Tensor, kept: Tensor | None, weights: Tensor, d_weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return dq, dk and dv.  d_weights (B, T, S)."""
    if not q.numel() * k.numel():
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    with torch.cuda.device_of(q):
        return _run_backward(q, k, v, kept, weights, d_weights.float().contiguous())


def _run_backward(
    q: Tensor, k: Tensor, v: Tensor, kept: Tensor | None, weights: Tensor, d_weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    (B, T, A), S = q.shape, k.shape[1]
    long_t, long_s, wide = _padded(T), _padded(S), _padded(A)
    de, transposed = weights.new_empty(B, long_t, long_s), weights.new_empty(B, long_s, long_t)
    softmax_backward[(-(-T // ROWS), B)](weights, d_weights, de, transposed, T, S, PAD, ROWS, BA, num_warps=4)
    Q, bits_q = _exponentials(q, None, False)
    K, bits_k = _exponentials(k, kept, False)
    v_padded, fast = _pad_v(v), not interpreted()
    dq, dk = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k))
    grid = (-(-T // BN), wide // PAD, B)
    sums = weights.new_empty(B * grid[0], wide)
    sizes = (BN, PAD, ROWS, BA)
    score_gradients[grid](
        Q, K, v_padded, bits_q, bits_k, transposed, dq, sums, T, S, A, fast, True, *sizes, num_warps=1
    )
    grid = (-(-S // BN), wide // PAD, B)
    score_gradients[grid](K, Q, v_padded, bits_k, bits_q, de, dk, sums, S, T, A, fast, False, *sizes, num_warps=1)
    return dq, dk, sums.sum(0)[:A].to(v.dtype)


_forward_op = torch.library.custom_op(
    "heedful::additive_weights",
    _forward,
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, Tensor? keep) -> Tensor",
)
_backward_op = torch.library.custom_op(
    "heedful::additive_weights_back",
    _backward,
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, Tensor? kept, Tensor weights, Tensor d_weights) -> (Tensor, Tensor, Tensor)",
)


@_forward_op.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
    return q.new_empty(*q.shape[:2], k.shape[1], dtype=torch.float32)


@_backward_op.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, kept: Tensor | None, weights: Tensor, d_weights: Tensor) -> tuple[Tensor, ...]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401
    q, k, v, keep = inputs
    ctx.save_for_backward(q, k, v, None if keep is None else kept_by_any(keep), output)


def _autograd_backward(ctx: Any, d_weights: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    q, k, v, kept, weights = ctx.saved_tensors
    return *torch.ops.heedful.additive_weights_back(q, k, v, kept, weights, d_weights), None


class _Weights(torch.autograd.Function):
    """The same as the custom operation, for eager mode: PyTorch takes half as long to call it."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:  # noqa: ANN401
        weights = _forward(q, k, v, keep)
        _setup_context(ctx, (q, k, v, keep), weights)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_weights: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        q, k, v, kept, weights = ctx.saved_tensors
        return *_backward(q, k, v, kept, weights, d_weights), None


_forward_op.register_autograd(_autograd_backward, setup_context=_setup_context)


@kernel("N", "A")
def exponentials(
    x, kept, X, bits, N, A,
    SOME: tl.constexpr, TRANSPOSE: tl.constexpr, PAD: tl.constexpr, ROWS: tl.constexpr, BA: tl.constexpr,
) -> None:  # fmt: skip
    """X[0] = e^{2x}, X[1] = x.  x (B, N, A), kept (B, N) -> X (2, B, N', A'), or (2, B, A', N') transposed, bits.

    QK must stay under 2^100 for v/(1 + QK) + v'/(1 + Q'K') to be exact over one denominator: if the denominator is too
    large to be inverted, both factors are at least 2^26, and both terms are negligible beside 1. So X is clamped to
    e^34.6, x to 17.3. This changes no result where the other side is above -7.6: tanh(9.7) is 1 in fp32.
    bits (B, N'/ROWS, A'/BA): bit 1 is set if an x of the block was clamped, bit 0 if one is below -7.6. Positions that
    no query may attend to are 0, whatever they hold.
    """
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    a = tl.program_id(1) * BA + tl.arange(0, BA)
    b = tl.program_id(2).to(tl.int64)
    valid = (rows < N)[:, None] & (a < A)[None, :]
    if SOME:
        valid &= (tl.load(kept + b * N + rows, rows < N, 0) != 0)[:, None]
    value = tl.load(x + (b * N + rows[:, None]) * A + a[None, :], valid, 0.0).to(tl.float32)
    high, low = tl.max((value > 17.3).to(tl.int32)), tl.max((value < -7.6).to(tl.int32))
    clamped = tl.where(value > 17.3, 17.3, value)  # NaN stays
    clamped = 2 * tl.where(clamped < -44, -44.0, clamped)
    # 2x = n ln 2 + rest and e^{2x} = 2^n e^rest, exactly: ln 2 is split so that n times its first part is exact.
    n = tl.floor(clamped * 1.4426950408889634 + 0.5)
    rest = clamped - n * 0.693359375 + n * 2.12194440e-4
    power = tl.exp2(n) * tl.exp(rest)
    long, wide = (N + PAD - 1) // PAD * PAD, (A + PAD - 1) // PAD * PAD
    beyond = tl.num_programs(2).to(tl.int64) * long * wide
    if TRANSPOSE:
        at = X + (b * wide + a[:, None]) * long + rows[None, :]
        tl.store(at, tl.trans(power))
        tl.store(at + beyond, tl.trans(value))
    else:
        at = X + (b * long + rows[:, None]) * wide + a[None, :]
        tl.store(at, power)
        tl.store(at + beyond, value)
    tl.store(bits + (b * (long // ROWS) + tl.program_id(0)) * (wide // BA) + tl.program_id(1), 2 * high + low)


@kernel("T", "S", "N", "parts", "keep_b", "keep_t", "keep_s")
def softmax(
    e, keep, weights, T, S, N, parts, keep_b, keep_t, keep_s, SOME: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr
) -> None:  # fmt: skip
    """α = softmax over positions to keep, zeros in a row without any.  e (parts, N = B·T, S) -> weights (N, S).

    With one part, weights may be e itself.
    """
    rows = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    at = rows[:, None] * S
    keep += (rows // T * keep_b + rows % T * keep_t)[:, None]
    top = tl.full([R], -float("inf"), tl.float32)
    mass = tl.zeros([R], tl.float32)
    for begin in range(0, S, BLOCK):
        c = begin + tl.arange(0, BLOCK)[None, :]
        valid = (rows < N)[:, None] & (c < S)
        x = tl.load(e + at + c, valid, 0.0)
        for i in range(1, parts):
            x += tl.load(e + i * N * S + at + c, valid, 0.0)
        if SOME:
            valid &= tl.load(keep + c * keep_s, valid, 0) != 0
        x = tl.where(valid, x, -float("inf"))
        higher = tl.maximum(top, tl.max(x, 1))
        # -inf - -inf would be NaN.
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
        valid = inside
        if SOME:
            valid = inside & (tl.load(keep + c * keep_s, inside, 0) != 0)
        tl.store(weights + at + c, tl.where(valid, tl.exp(x - ground) * over, 0.0), inside)


@kernel("T", "S")
def softmax_backward(
    weights, d_weights, de, transposed, T, S, PAD: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    """de = α(dα - Σ_j α_j dα_j).  weights, d_weights (B, T, S) -> de (B, T', S'), transposed (B, S', T').

    Padding is written only in the last blocks of T and S: the rest of it is not read.
    """
    rows, b = tl.program_id(0) * R + tl.arange(0, R), tl.program_id(1).to(tl.int64)
    at = ((b * T + rows) * S)[:, None]
    long_t, long_s = (T + PAD - 1) // PAD * PAD, (S + PAD - 1) // PAD * PAD
    total = tl.zeros([R], tl.float32)
    for begin in range(0, S, BLOCK):
        c = begin + tl.arange(0, BLOCK)
        valid = (rows < T)[:, None] & (c < S)[None, :]
        w = tl.load(weights + at + c[None, :], valid, 0.0)
        total += tl.sum(w * tl.load(d_weights + at + c[None, :], valid, 0.0), 1)
    for begin in range(0, S, BLOCK):
        c = begin + tl.arange(0, BLOCK)
        valid = (rows < T)[:, None] & (c < S)[None, :]
        w = tl.load(weights + at + c[None, :], valid, 0.0)
        d = w * (tl.load(d_weights + at + c[None, :], valid, 0.0) - total[:, None])
        tl.store(de + (b * long_t + rows[:, None]) * long_s + c[None, :], d)
        tl.store(transposed + (b * long_s + c[:, None]) * long_t + rows[None, :], tl.trans(d))


@part
def _reciprocal(x, FAST: tl.constexpr) -> tl.tensor:
    """1/x to one unit in the last place, 0 above 2^126.  Triton's division takes several instructions."""
    if FAST:  # noqa: SIM108  (Triton compiles the branch that is taken, and no other)
        y = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
    else:  # the interpreter has no assembler
        y = 1 / x
    return y


@part
def _is_inexact(one, other) -> tl.tensor:
    """Whether one side was clamped (bit 1) and the other is low (bit 0), so that the exact formula is needed."""
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
    v_sum = 0.0
    for block in range(piece * per, tl.minimum(piece * per + per, (A + BA - 1) // BA)):
        other = tl.load(bits_k + block)
        for i in tl.static_range(1, BS // ROWS):
            other |= tl.load(bits_k + i * blocks + block)
        at_q, at_k = Q + tl.cast(block * BA, tl.int64) * long_t, K + tl.cast(block * BA, tl.int64) * long_s
        end = tl.minimum(block * BA + BA, A)
        if _is_inexact(tl.load(bits_q + block), other) != 0:
            at_q += beyond * long_t
            at_k += beyond * long_s
            for a in range(block * BA, end):
                v_a = tl.load(v + a)
                x = tl.load(at_q)[:, None] + tl.load(at_k)[None, :]
                sums += v_a * _reciprocal(1 + tl.exp(2 * tl.minimum(x, 40.0, tl.PropagateNan.ALL)), FAST)
                v_sum += v_a
                at_q += long_t
                at_k += long_s
        else:
            for a in range(block * BA, end, 2):
                v_a, v_a1 = tl.load(v + a), tl.load(v + a + 1)
                d = tl.load(at_q)[:, None] * tl.load(at_k)[None, :] + 1
                d_1 = tl.load(at_q + long_t)[:, None] * tl.load(at_k + long_s)[None, :] + 1
                sums += (v_a * d_1 + v_a1 * d) * _reciprocal(d * d_1, FAST)
                v_sum += v_a + v_a1
                at_q += 2 * long_t
                at_k += 2 * long_s
    row = (piece * tl.num_programs(1) + b) * T + t
    tl.store(e + row[:, None] * S + s[None, :], v_sum - 2 * sums, (t < T)[:, None] & (s < S)[None, :])


@part
def _all_bits(bits, BA: tl.constexpr, PAD: tl.constexpr) -> tl.tensor:
    """The bits of the PAD columns of a program, combined."""
    first = tl.program_id(1) * (PAD // BA)
    combined = tl.load(bits + first)
    for i in tl.static_range(1, PAD // BA):
        combined |= tl.load(bits + first + i)
    return combined


@kernel("N", "M", "A")
def score_gradients(
    X, Y, v, bits_x, bits_y, de, dx, dv, N, M, A,
    FAST: tl.constexpr, BOTH: tl.constexpr, BN: tl.constexpr, PAD: tl.constexpr, ROWS: tl.constexpr, BA: tl.constexpr,
) -> None:  # fmt: skip
    """dx_na = 4 v_a Σ_m de_mn (r - r²), and -2 Σ de r for v.  X (2, B, N', A'), Y (2, B, M', A'), de (B, M', N').

    Called with X = q and Y = k and, with de transposed, with X = k and Y = q.
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
    exp_x = tl.load(X)
    sums = tl.zeros([BN, PAD], tl.float32)
    sums_v = tl.zeros([BN, PAD], tl.float32)
    for begin in range(0, M, ROWS):
        at_y, at_de = Y + tl.cast(begin, tl.int64) * wide, de + tl.cast(begin, tl.int64) * long_n
        end = tl.minimum(begin + ROWS, M)
        if _is_inexact(own, _all_bits(bits_y + begin // ROWS * blocks, BA, PAD)) != 0:
            at_y += beyond * long_m
            for _ in range(begin, end):
                g = tl.load(at_de)[:, None]
                z = tl.load(X + beyond * long_n) + tl.load(at_y)[None, :]
                r = _reciprocal(1 + tl.exp(2 * tl.minimum(z, 40.0, tl.PropagateNan.ALL)), FAST)
                if BOTH:
                    sums_v += g * r
                sums += g * (r - r * r)
                at_y += wide
                at_de += long_n
        else:
            for _ in range(begin, end, 2):
                d = exp_x * tl.load(at_y)[None, :] + 1
                d_1 = exp_x * tl.load(at_y + wide)[None, :] + 1
                both = _reciprocal(d * d_1, FAST)
                r, r_1 = both * d_1, both * d
                g, g_1 = tl.load(at_de)[:, None], tl.load(at_de + long_n)[:, None]
                if BOTH:
                    sums_v += g * r
                    sums_v += g_1 * r_1
                sums += g * (r - r * r)
                sums += g_1 * (r_1 - r_1 * r_1)
                at_y += 2 * wide
                at_de += 2 * long_n
    v_a = tl.load(v + a)
    at = dx + (b * N + n[:, None]) * A + a[None, :]
    tl.store(at, (4 * v_a[None, :] * sums).to(dx.dtype.element_ty), (n < N)[:, None] & (a < A)[None, :])
    if BOTH:
        row = b * tl.num_programs(0) + tl.program_id(0)
        tl.store(dv + row * wide + a, -2 * tl.sum(sums_v, 0))
