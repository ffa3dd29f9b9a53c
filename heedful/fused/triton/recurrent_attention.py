"""Kernels for the attention of one query: scores, mask, softmax and context; and the backward pass.

The reference is `heedful.fused.cpu.recurrence`, which has the same buffers. A program computes one query. It keeps the
scores of all S positions in registers and loads the keys, then the values, in tiles of some columns. The backward pass
loads the values first, for the gradient of the weights, then the keys, for that of the query; tanh is computed again.
The gradients of the additive score's keys and v are computed by one more kernel after the last step, for all T queries.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedful.errors import ShapeError
from heedful.fused.triton.launch import kernel, no_compile, part, power_of_2
from heedful.fused.triton.recurrent_cells import check_tensors, in_units, row_stride, tanh

if TYPE_CHECKING:
    import triton.language as tl


Sizes = tuple[int, ...]
LONGEST = 1024  # positions: a program has the scores of all of them in registers
TILE = 8192  # elements of a tile of keys or values: 32 KiB
KEY_ROWS, KEY_COLUMNS = 4, 128  # block of the keys' gradient that a program sums over all queries


@part
def _tile(memory, stride, kept, begin, W, BS: tl.constexpr, BLOCK: tl.constexpr) -> tl.tensor:
    """Columns from `begin` on of the positions to keep, and 0 elsewhere.  memory (S, W) -> (BS, BLOCK)."""
    j, a = tl.arange(0, BS).to(tl.int64), begin + tl.arange(0, BLOCK)
    return tl.load(memory + j[:, None] * stride + a[None, :], kept[:, None] & (a < W)[None, :], 0.0)


@kernel("t", "S", "K")
def _attend(
    s, q, keys, v, values, keep, weights, c,
    t, S, K, A, E, key_step, key_stride, value_step, value_stride, q_width, UNIT: tl.constexpr,
    SCALE: tl.constexpr, ADDITIVE: tl.constexpr, BS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    A, E, q_width = A * UNIT, E * UNIT, q_width * UNIT
    key_step, key_stride = key_step * UNIT, key_stride * UNIT
    value_step, value_stride = value_step * UNIT, value_stride * UNIT
    r = tl.program_id(0)
    b = (r // K).to(tl.int64)
    row = t.to(tl.int64) * tl.num_programs(0) + r
    j = tl.arange(0, BS)
    kept = tl.load(keep + b * S + j, j < S, 0) != 0
    keys += b * key_step
    values += b * value_step
    total = tl.zeros([BS, BLOCK], keys.dtype.element_ty)
    k = _tile(keys, key_stride, kept, 0, A, BS, BLOCK)
    for begin in range(0, A, BLOCK):
        # Prefetch the next tile while tanh is computed; beyond the last one everything is masked.
        next_tile = _tile(keys, key_stride, kept, begin + BLOCK, A, BS, BLOCK)
        a = begin + tl.arange(0, BLOCK)
        if ADDITIVE:
            x = tl.load(q + row * q_width + a, a < A, 0.0)
            w = tl.load(v + a, a < A, 0.0)
            total += tanh(k + x[None, :]) * w[None, :]
        else:
            x = tl.load(s + r.to(tl.int64) * A + a, a < A, 0.0) * SCALE
            tl.store(q + row * q_width + a, x, a < A)
            total += k * x[None, :]
        k = next_tile
    h = _tile(values, value_stride, kept, 0, E, BS, BLOCK)
    e = tl.where(kept, tl.sum(total, 1), -float("inf"))
    top = tl.max(e, 0)
    p = tl.exp(e - tl.where(top == -float("inf"), 0.0, top))
    mass = tl.sum(p, 0)
    # A row with nothing to attend to gives zeros.
    alpha = p / tl.where(mass == 0, 1.0, mass)
    tl.store(weights + row * S + j, alpha, j < S)
    for begin in range(0, E, BLOCK):
        next_tile = _tile(values, value_stride, kept, begin + BLOCK, E, BS, BLOCK)
        a = begin + tl.arange(0, BLOCK)
        tl.store(c + row * E + a, tl.sum(alpha[:, None] * h, 0), a < E)
        h = next_tile


@kernel("t", "S")
def _attend_back(
    q, keys, v, values, keep, weights, dc, d_weights, de, dq, ds,
    t, S, A, E, key_step, key_stride, value_step, value_stride, q_width, dq_width, UNIT: tl.constexpr,
    SCALE: tl.constexpr, MORE: tl.constexpr, ADDITIVE: tl.constexpr, BS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    A, E, q_width, dq_width = A * UNIT, E * UNIT, q_width * UNIT, dq_width * UNIT
    key_step, key_stride = key_step * UNIT, key_stride * UNIT
    value_step, value_stride = value_step * UNIT, value_stride * UNIT
    b = tl.program_id(0).to(tl.int64)
    row = t.to(tl.int64) * tl.num_programs(0) + b
    j = tl.arange(0, BS)
    kept = tl.load(keep + b * S + j, j < S, 0) != 0
    keys += b * key_step
    values += b * value_step
    total = tl.zeros([BS, BLOCK], keys.dtype.element_ty)
    h = _tile(values, value_stride, kept, 0, E, BS, BLOCK)
    for begin in range(0, E, BLOCK):
        next_tile = _tile(values, value_stride, kept, begin + BLOCK, E, BS, BLOCK)
        a = begin + tl.arange(0, BLOCK)
        total += h * tl.load(dc + row * E + a, a < E, 0.0)[None, :]
        h = next_tile
    k = _tile(keys, key_stride, kept, 0, A, BS, BLOCK)
    d = tl.sum(total, 1)
    if MORE:
        d += tl.load(d_weights + row * S + j, kept, 0.0)
    alpha = tl.load(weights + row * S + j, kept, 0.0)
    d = alpha * (d - tl.sum(alpha * d, 0))
    tl.store(de + row * S + j, d, j < S)
    for begin in range(0, A, BLOCK):
        next_tile = _tile(keys, key_stride, kept, begin + BLOCK, A, BS, BLOCK)
        a = begin + tl.arange(0, BLOCK)
        if ADDITIVE:
            f = tanh(k + tl.load(q + row * q_width + a, a < A, 0.0)[None, :])
            w = tl.load(v + a, a < A, 0.0)
            tl.store(dq + row * dq_width + a, tl.sum(d[:, None] * (1 - f * f), 0) * w, a < A)
        else:
            place = ds + b * A + a
            tl.store(place, tl.load(place, a < A, 0.0) + SCALE * tl.sum(d[:, None] * k, 0), a < A)
        k = next_tile


@kernel("T", "S")
def _keys_back(
    q, keys, v, keep, de, dk, dv,
    T, S, A, key_step, key_stride, q_width, UNIT: tl.constexpr, BS: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    A, q_width, key_step, key_stride = A * UNIT, q_width * UNIT, key_step * UNIT, key_stride * UNIT
    b, B = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    j = tl.program_id(1) * BS + tl.arange(0, BS)
    a = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    mask = (j < S)[:, None] & (a < A)[None, :]
    kept = tl.load(keep + b * S + j, j < S, 0) != 0
    place = keys + b * key_step + j.to(tl.int64)[:, None] * key_stride + a[None, :]
    k = tl.load(place, kept[:, None] & (a < A)[None, :], 0.0)
    d_v = tl.zeros([BS, BLOCK], keys.dtype.element_ty)
    slope = tl.zeros([BS, BLOCK], keys.dtype.element_ty)
    for t in range(T):
        row = t * B + b
        d = tl.load(de + row * S + j, j < S, 0.0)[:, None]
        f = tanh(k + tl.load(q + row * q_width + a, a < A, 0.0)[None, :])
        d_v += d * f
        slope += d * (1 - f * f)
    tl.store(dk + b * S * A + j[:, None] * A + a[None, :], slope * tl.load(v + a, a < A, 0.0)[None, :], mask)
    tl.store(dv + (b * tl.num_programs(1) + tl.program_id(1)) * A + a, tl.sum(d_v, 0), a < A)


def attendable(S: int) -> bool:
    """Whether a program can hold S positions in registers."""
    return S <= LONGEST


def _sizes(S: int, A: int, E: int, kind: torch.dtype) -> tuple[int, int, int]:
    """Return a tile's positions and columns, powers of 2, and the number of warps."""
    if not attendable(S):
        raise ShapeError(f"kernels attend to at most {LONGEST} positions, got {S}")
    positions = max(16, power_of_2(S))
    # fp64 is for tests: small tiles compile faster.
    tile = TILE if kind == torch.float32 else TILE // 4
    columns = max(8, min(tile // positions, power_of_2(max(A, E))))
    return positions, columns, 8 if positions * columns >= 4096 else 4


def _rows(memory: Tensor) -> Tensor:
    """Return a memory whose last axis is contiguous; the other two may be in any order.  (B, S, W)."""
    return memory if memory.stride(-1) == 1 else memory.contiguous()


def _check(
    memory: tuple[Tensor, Tensor, Tensor], v: Tensor | None, buffers: Mapping[str, tuple[Tensor, Sizes]]
) -> None:
    """Raise ShapeError for tensors whose shapes do not match."""
    keys, values, keep = memory
    B, S, A = keys.shape
    sizes = {"keys": (keys, (B, S, A)), "values": (values, (B, S, values.shape[-1])), "keep": (keep, (B, S)), **buffers}
    check_tensors(sizes if v is None else {**sizes, "v": (v, (A,))}, contiguous=False)
    if keep.dtype != torch.bool:
        raise ShapeError(f"keep is {keep.dtype}; expected torch.bool, True for positions to attend to")


class AttendSteps:
    """Attention of T queries, one at a time: keys (B, S, A), values (B, S, E), keep (B, S), v (A,) if additive.

    `saved` are buffers for queries, weights and contexts: q (T, B, A), α (T, B, S), c (T, B, E). Rows of q, and of its
    gradient, may be parts of wider rows.
    """

    def __init__(
        self,
        memory: tuple[Tensor, Tensor, Tensor],
        saved: tuple[Tensor, ...],
        v: Tensor | None = None,
        scale: float = 1.0,
    ) -> None:
        keys, values, keep = memory
        (B, S, A), (T, E) = keys.shape, (saved[0].shape[0], values.shape[-1])
        keys, values, keep = _rows(keys), _rows(values), keep.contiguous()
        self.T, self.sizes = T, _sizes(S, A, E, keys.dtype)
        self.q, self.weights, self.c = saved
        buffers = {"q": (self.q, (T, B, A)), "weights": (self.weights, (T, B, S)), "c": (self.c, (T, B, E))}
        _check((keys, values, keep), v, buffers)
        check_tensors({name: buffers[name] for name in ("weights", "c")})
        self.widths = (A, E, *keys.stride()[:2], *values.stride()[:2], row_stride("q", self.q))
        self.sizes_forward = in_units(*self.widths)
        self.keys, self.values, self.keep, self.scale = keys, values, keep, float(scale)
        self.additive, self.v = v is not None, keys if v is None else v.contiguous()

    def forward(self, t: int, s: Tensor) -> None:
        """Compute `weights[t]` and `c[t]`. If additive, `q[t]` must hold W s; otherwise scale · s is written there.

        s (B, A) must be contiguous.
        """
        B, S = self.keep.shape
        positions, columns, warps = self.sizes
        if B:
            _attend[(B,)](
                s, self.q, self.keys, self.v, self.values, self.keep, self.weights, self.c, t, S, 1,
                *self.sizes_forward, self.scale, self.additive, positions, columns, num_warps=warps,
            )  # fmt: skip

    def begin_backward(self, dc: Tensor, d_weights: Tensor | None, dq: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Begin the backward pass.  dc (T, B, E), d_weights (T, B, S) -> buffers for the gradients of q and scores.

        dq (T, B, A): the first of them, if it is allocated already.
        """
        self.dc, self.d_weights = dc, d_weights
        self.dq, self.de = torch.empty_like(self.q) if dq is None else dq, torch.empty_like(self.weights)
        checked = self.weights if d_weights is None else d_weights
        check_tensors({"dc": (dc, tuple(self.c.shape)), "d_weights": (checked, tuple(self.weights.shape))})
        check_tensors({"dc": (dc, tuple(self.c.shape)), "dq": (self.dq, tuple(self.q.shape))}, contiguous=False)
        self.sizes_backward = in_units(*self.widths, row_stride("dq", self.dq))
        return self.dq, self.de

    def backward(self, t: int, ds: Tensor) -> None:
        """Compute `de[t]` from `dc[t]`, and `dq[t]` if additive; otherwise add scale · dq to ds.

        ds (B, A) must be contiguous.
        """
        B, S = self.keep.shape
        positions, columns, warps = self.sizes
        d_weights = self.weights if self.d_weights is None else self.d_weights
        if B:
            _attend_back[(B,)](
                self.q, self.keys, self.v, self.values, self.keep, self.weights, self.dc, d_weights,
                self.de, self.dq, ds, t, S, *self.sizes_backward, self.scale, self.d_weights is not None, self.additive,
                positions, columns, num_warps=warps,
            )  # fmt: skip

    def d_keys(self) -> tuple[Tensor, Tensor]:
        """Return the gradients of the additive score's keys (B, S, A) and v (A,), of all queries."""
        B, S, A = self.keys.shape
        if not (self.keys.numel() and self.T):
            return torch.zeros_like(self.keys), torch.zeros_like(self.v)
        blocks = (S + KEY_ROWS - 1) // KEY_ROWS
        dk, dv = self.keys.new_empty(B, S, A), self.v.new_empty(B * blocks, A)
        _keys_back[(B, blocks, (A + KEY_COLUMNS - 1) // KEY_COLUMNS)](
            self.q, self.keys, self.v, self.keep, self.de, dk, dv, self.T, S,
            *in_units(A, *self.keys.stride()[:2], self.widths[-1]), KEY_ROWS, KEY_COLUMNS, num_warps=1,
        )  # fmt: skip
        return dk, dv.sum(0)


@no_compile
def attend_step(
    q: Tensor, keys: Tensor, values: Tensor, keep: Tensor, v: Tensor | None = None, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return c and α of queries, without a gradient.  q (R, A), keys (B, S, A), values (B, S, E) -> (R, E), (R, S).

    R is B, or B·K: K queries of each sentence, side by side. With v (A,) the score is additive, else scale · q · k.
    """
    (B, S, A), R, E = keys.shape, q.shape[0], values.shape[-1]
    q, keys, values, keep = q.contiguous(), _rows(keys), _rows(values), keep.contiguous()
    _check((keys, values, keep), v, {"q": (q, (R, A))})
    if not B or R % B:
        raise ShapeError(f"{R} queries are not a multiple of {B} sentences")
    weights, c = q.new_empty(R, S), q.new_empty(R, E)
    positions, columns, warps = _sizes(S, A, E, keys.dtype)
    if not R:
        return c, weights
    with torch.cuda.device_of(q):
        _attend[(R,)](
            q, q if v is not None else torch.empty_like(q), keys, keys if v is None else v.contiguous(), values, keep,
            weights, c, 0, S, R // B, *in_units(A, E, *keys.stride()[:2], *values.stride()[:2], A), float(scale),
            v is not None, positions, columns, num_warps=warps,
        )  # fmt: skip
    return c, weights
