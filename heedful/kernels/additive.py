"""Bahdanau's attention for all T questions at once, without ever holding (B, T, S, A).

tanh(q + k) = 1 - 2/(1 + e^{2q} e^{2k}): the exponentials are taken once for each row (`additive_rows`), T + S of them
instead of T · S, and what is left for each of the T · S · A elements is a product, a sum and half a reciprocal
(`additive_tiles`). On the way back the same is worked out again. Weights are kept, (B, T, S); nothing is larger.

The kernels give the weights and their gradients; the context is a product of PyTorch's. To `torch.compile` the kernels
are two operations whose inside it does not look into. The pure reference is `heedful.attention.additive`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from heedful.errors import ShapeError
from heedful.kernels import additive_rows as rows
from heedful.kernels import additive_tiles as tiles
from heedful.kernels.launch import interpreted
from heedful.notation import check

__all__ = ["KINDS", "additive_attend", "additive_weights", "fit", "fitted_attend", "seen_by_any", "unfit"]

KINDS = (torch.float32, torch.bfloat16, torch.float16)
PAD = 128  # T, S and A are padded to multiples of it, between kernels
ROWS, BA = 32, 64  # rows and columns that share their bits
TILES = ((16, 128), (32, 64))  # (T, S) of a program of the scores: 64 sums for each thread of its one warp
BN = 8  # rows of a program on the way back
PROGRAMS = 2112  # that fit on 132 multiprocessors; with fewer, the sum over a is cut into parts
MOST = 65_535  # sentences: the grid of a kernel is not larger


def additive_attend(
    q: Tensor, k: Tensor, v: Tensor, values: Tensor, keep: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return c and α.  q (B, T, A), k (B, S, A), v (A,), values (B, S, D) -> (B, T, D), (B, T, S).

    keep (B, S), or (B, T, S) where an axis of size 1 stands for all: what may be looked at. What nobody may look at may
    hold anything, NaN too. Everything up to the weights is in fp32, and so are they, under autocast, too; the context
    is of the values' type.
    """
    sizes = check(q=(q, "B T A"), k=(k, "B S A"), v=(v, "A"), values=(values, "B S D"))
    keep = fit({"q": q, "k": k, "v": v, "values": values}, keep, [sizes[axis] for axis in "BTS"])
    return fitted_attend(q, k, v, values, keep)


def fitted_attend(q: Tensor, k: Tensor, v: Tensor, values: Tensor, keep: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the same for tensors that are known to fit, keep (B, T, S) among them: nothing is looked at twice."""
    weights = _weights(q, k, v, keep)
    if keep is not None:
        values = values.masked_fill(~seen_by_any(keep)[..., None], 0)
    with torch.autocast(values.device.type, enabled=False):
        return weights.to(values.dtype) @ values, weights


def additive_weights(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None = None) -> Tensor:
    """Return α, the softmax over j of v · tanh(q_t + k_j).  q (B, T, A), k (B, S, A), v (A,) -> (B, T, S) of fp32."""
    sizes = check(q=(q, "B T A"), k=(k, "B S A"), v=(v, "A"))
    return _weights(q, k, v, fit({"q": q, "k": k, "v": v}, keep, [sizes[axis] for axis in "BTS"]))


def _weights(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
    if problem := unfit(q, k, v):
        raise ShapeError(problem)
    if not q.is_cuda and not interpreted():
        raise ShapeError(f"the kernels need a CUDA device; q is on {q.device}")
    if torch.compiler.is_compiling():
        return torch.ops.heedful.additive_weights(q, k, v, keep)  # type: ignore[no-any-return]
    return _Weights.apply(q, k, v, keep)  # type: ignore[no-any-return, no-untyped-call]


def unfit(q: Tensor, k: Tensor, v: Tensor) -> str:
    """Return why the kernels cannot take these, or nothing."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.dtype not in KINDS:
            return f"{name} is of {x.dtype}; the kernels take {', '.join(map(str, KINDS))}"
    if q.shape[0] > MOST:
        return f"the kernels take at most {MOST:,} sentences at once; given {q.shape[0]:,}"
    return ""


def fit(tensors: dict[str, Tensor], keep: Tensor | None, shape: Sequence[int]) -> Tensor | None:
    """Refuse what is not on one device, and a mask that does not fit; return it for every pair: (B, T, S)."""
    places = {name: x.device for name, x in [*tensors.items(), *([] if keep is None else [("keep", keep)])]}
    if len(set(places.values())) > 1:
        raise ShapeError(f"all have to be on one device; given {', '.join(f'{n} on {d}' for n, d in places.items())}")
    if keep is None:
        return None
    if keep.dtype != torch.bool:
        raise ShapeError(f"keep is of {keep.dtype}, expected torch.bool: True where may be looked")
    whole = keep[:, None] if keep.dim() == 2 else keep
    if whole.dim() != 3 or any(found not in (1, size) for found, size in zip(whole.shape, shape, strict=True)):
        raise ShapeError(f"keep has shape {tuple(keep.shape)}, expected (B, S) or (B, T, S) for scores {tuple(shape)}")
    return whole.expand(*shape)


def seen_by_any(keep: Tensor) -> Tensor:
    """Return what anybody may look at.  keep (B, T, S) -> (B, S)."""
    if keep.stride(1) == 0 and keep.shape[1]:
        return keep[:, 0]
    return keep.any(1)


def _padded(n: int) -> int:
    return -(-n // PAD) * PAD


def _exponentials(x: Tensor, seen: Tensor | None, turn: bool) -> tuple[Tensor, Tensor]:
    """Return e^{2x} and x, padded, and their bits.  x (B, N, A) -> (2, B, N', A') or turned (2, B, A', N'), (B, …)."""
    B, N, A = x.shape
    long, wide = _padded(N), _padded(A)
    X = x.new_empty(2, B, *((wide, long) if turn else (long, wide)), dtype=torch.float32)
    bits = x.new_empty(B, long // ROWS, wide // BA, dtype=torch.int32)
    seen = None if seen is None else seen.contiguous()
    grid = (long // ROWS, wide // BA, B)
    mask = bits if seen is None else seen
    rows.exponentials[grid](x.contiguous(), mask, X, bits, N, A, seen is not None, turn, PAD, ROWS, BA, num_warps=4)
    return X, bits


def _shares(v: Tensor) -> Tensor:
    """Return v in fp32, with zeros after it.  (A,) -> (A',)."""
    A = v.shape[0]
    return torch.nn.functional.pad(v.float(), (0, _padded(A) - A)) if A % PAD else v.float().contiguous()


def _scores(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
    """Return the scores, in parts that have to be added.  q (B, T, A), k (B, S, A), v (A,) -> (P, B, T, S)."""
    (B, T, A), S = q.shape, k.shape[1]
    Q, bits_q = _exponentials(q, None, True)
    K, bits_k = _exponentials(k, seen, True)
    BT, BS = TILES[0] if TILES[1][1] < S else TILES[1]
    grid = -(-T // BT) * -(-S // BS)
    blocks = -(-A // BA)
    per = -(-blocks // min(blocks, max(1, PROGRAMS // (grid * B))))
    parts = -(-blocks // per)
    e = q.new_empty(parts, B, T, S, dtype=torch.float32)
    tiles.scores[(grid, B, parts)](
        Q, K, _shares(v), bits_q, bits_k, e, T, S, A, per, not interpreted(), BT, BS, PAD, ROWS, BA,
        num_warps=1, maxnreg=128,
    )  # fmt: skip
    return e


def _forward(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
    (B, T, A), S = q.shape, k.shape[1]
    if not B * T * S * A:
        return _empty_case(q, k, keep)
    with torch.cuda.device_of(q):  # type: ignore[no-untyped-call]
        e = _scores(q, k, v, None if keep is None else seen_by_any(keep))
        parts = e.shape[0]
        weights = e[0] if parts == 1 else torch.empty_like(e[0])
        strides = (0, 0, 0) if keep is None else keep.stride()
        mask = e if keep is None else keep
        grid = (-(-B * T // 8),)
        rows.softmax[grid](e, mask, weights, T, S, B * T, parts, *strides, keep is not None, 8, 128, num_warps=4)
    return weights


def _empty_case(q: Tensor, k: Tensor, keep: Tensor | None) -> Tensor:
    """Return the weights where there is nothing to add up: all scores are 0."""
    e = q.new_zeros(*q.shape[:2], k.shape[1], dtype=torch.float32)
    if keep is None:
        return e.softmax(-1)
    return e.masked_fill(~keep, torch.finfo(e.dtype).min).softmax(-1).masked_fill(~keep, 0)


def _backward(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, weights: Tensor, slope: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return dq, dk and dv.  slope (B, T, S): that of the weights."""
    if not q.numel() * k.numel():
        return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    with torch.cuda.device_of(q):  # type: ignore[no-untyped-call]
        return _slopes(q, k, v, seen, weights, slope.float().contiguous())


def _slopes(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, weights: Tensor, slope: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    (B, T, A), S = q.shape, k.shape[1]
    long_t, long_s, wide = _padded(T), _padded(S), _padded(A)
    de, turned = weights.new_empty(B, long_t, long_s), weights.new_empty(B, long_s, long_t)
    rows.unsoftmax[(-(-T // ROWS), B)](weights, slope, de, turned, T, S, PAD, ROWS, BA, num_warps=4)
    Q, bits_q = _exponentials(q, None, False)
    K, bits_k = _exponentials(k, seen, False)
    shares, fast = _shares(v), not interpreted()
    dq, dk = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k))
    grid = (-(-T // BN), wide // PAD, B)
    sums = weights.new_empty(B * grid[0], wide)
    sizes = (BN, PAD, ROWS, BA)
    tiles.slopes[grid](Q, K, shares, bits_q, bits_k, turned, dq, sums, T, S, A, fast, True, *sizes, num_warps=1)
    grid = (-(-S // BN), wide // PAD, B)
    tiles.slopes[grid](K, Q, shares, bits_k, bits_q, de, dk, sums, S, T, A, fast, False, *sizes, num_warps=1)
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
    schema="(Tensor q, Tensor k, Tensor v, Tensor? seen, Tensor weights, Tensor slope) -> (Tensor, Tensor, Tensor)",
)


@_forward_op.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
    return q.new_empty(*q.shape[:2], k.shape[1], dtype=torch.float32)


@_backward_op.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None, weights: Tensor, slope: Tensor) -> tuple[Tensor, ...]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401
    q, k, v, keep = inputs
    ctx.save_for_backward(q, k, v, None if keep is None else seen_by_any(keep), output)


def _learn(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    q, k, v, seen, weights = ctx.saved_tensors
    return *torch.ops.heedful.additive_weights_back(q, k, v, seen, weights, slope), None


class _Weights(torch.autograd.Function):
    """The same as the operation above, for whoever does not compile: PyTorch takes half as long to call it."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:  # noqa: ANN401
        weights = _forward(q, k, v, keep)
        _remember(ctx, (q, k, v, keep), weights)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        q, k, v, seen, weights = ctx.saved_tensors
        return *_backward(q, k, v, seen, weights, slope), None


_forward_op.register_autograd(_learn, setup_context=_remember)
