"""dropout(relu(x + b)) by one kernel, and its gradient by one more, b's with it.

What comes out above 0 was let through by both, so the backward pass needs neither x nor the mask.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from heedful.fused.triton.dropout_mask import DropoutMasks, stays
from heedful.fused.triton.launch import kernel, power_of_2

if TYPE_CHECKING:
    import triton.language as tl

__all__ = ["relu_dropout"]

COLUMNS = 1024  # that a program works on at most
ELEMENTS = 2048
PROGRAMS = 512  # at most for some columns, in the backward pass: so many sums are added up at the end


@kernel("mask", "N")
def _forward(
    x, b, y, key, mask, N, D, p, DROP: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr
) -> None:  # fmt: skip
    rows = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = (rows < N)[:, None] & (c < D)[None, :]
    at = rows.to(tl.int64)[:, None] * D + c[None, :]
    s = tl.load(x + at, there, 0.0).to(tl.float32) + tl.load(b + c, c < D, 0.0).to(tl.float32)[None, :]
    s = tl.where(s < 0, 0.0, s)  # NaN stays
    if DROP:
        # Rows are counted as if every block of columns were a row of its own.
        s *= stays(key, mask, rows * tl.num_programs(1) + tl.program_id(1), p, BLOCK)
    tl.store(y + at, s.to(y.dtype.element_ty), there)


@kernel("N")
def _backward(dy, y, dx, sums, N, D, p, R: tl.constexpr, BLOCK: tl.constexpr) -> None:
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    db = tl.zeros([BLOCK], tl.float32)
    for begin in range(tl.program_id(0) * R, N, tl.num_programs(0) * R):
        rows = begin + tl.arange(0, R)
        there = (rows < N)[:, None] & (c < D)[None, :]
        at = rows.to(tl.int64)[:, None] * D + c[None, :]
        d = tl.load(dy + at, there, 0.0).to(tl.float32) / (1 - p)
        d = tl.where(tl.load(y + at, there, 0.0).to(tl.float32) > 0, d, 0.0)
        db += tl.sum(d, 0)
        tl.store(dx + at, d.to(dx.dtype.element_ty), there)
    tl.store(sums + tl.program_id(0).to(tl.int64) * D + c, db, c < D)


def _sizes(D: int) -> tuple[int, int]:
    block = max(16, min(COLUMNS, power_of_2(D)))
    return ELEMENTS // block, block


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, b: Tensor, p: float, key: Tensor | None, mask: int) -> Tensor:  # noqa: ANN401
        D = x.shape[-1]
        N = x.numel() // D
        x = x.contiguous()
        y = torch.empty_like(x)
        R, block = _sizes(D)
        if N:
            grid = ((N + R - 1) // R, (D + block - 1) // block)
            _forward[grid](x, b, y, x if key is None else key, mask, N, D, p, p > 0, R, block, num_warps=4)
        ctx.save_for_backward(y, b)
        ctx.p = p
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        y, b = ctx.saved_tensors
        D = y.shape[-1]
        N = y.numel() // D
        dx = torch.empty_like(y)
        R, block = _sizes(D)
        programs = min((N + R - 1) // R, PROGRAMS)
        sums = torch.empty(programs, D, dtype=torch.float32, device=y.device)
        if N:
            grid = (programs, (D + block - 1) // block)
            _backward[grid](dy.contiguous(), y, dx, sums, N, D, ctx.p, R, block, num_warps=4)
        return dx, sums.sum(0).to(b.dtype), None, None, None


def relu_dropout(x: Tensor, b: Tensor, p: float, chance: DropoutMasks | None) -> Tensor:
    """Return dropout(relu(x + b)), of x's type.  x (…, D), b (D,) -> (…, D)."""
    dropped = p > 0 and chance is not None
    key, mask = (chance.key, chance.next()) if dropped and chance is not None else (None, 0)
    return _ReluDropout.apply(x, b, p if dropped else 0.0, key, mask)  # type: ignore[no-any-return]
