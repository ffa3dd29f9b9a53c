"""The element-wise parts of a Transformer's sub-layers: residual sum, dropout and LN; bias, ReLU and dropout.

`residual_norm`: x' = x + dropout(g) and n = LN(x') by one kernel, and their gradients by another. In the backward pass
x' is normalised again, from its mean and 1/σ, and the mask is drawn again. The gradients of γ and β are sums over all
rows: each program sums up its own, and those sums are added by PyTorch.

`relu_dropout`: dropout(relu(x + b)) by one kernel, and its gradient, with that of b, by another. The output is above 0
where both let the input through, so the backward pass needs neither x nor the mask.

Dropout masks are Philox numbers with the element's index as counter, and a key that PyTorch's generator draws on the
device once for a forward pass. A captured CUDA graph runs the same kernels with the same arguments again, so the random
key must come from device memory; a replay draws another key, which follows from `torch.manual_seed`, so that a resumed
run computes the same. Each mask of a pass has a number, which is added to the key. Nothing is saved for the backward
pass: the same key, number and element give the same mask.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from heedful.fused.triton.launch import kernel, part, power_of_2

if TYPE_CHECKING:
    import triton.language as tl


NORM_ELEMENTS = 2048  # of a program's block
NORM_PROGRAMS = 1024  # at most in the backward pass: PyTorch adds their sums
RELU_COLUMNS = 1024  # at most in a program's block
RELU_ELEMENTS = 2048
RELU_PROGRAMS = 512  # at most for a block of columns in the backward pass: PyTorch adds their sums


class DropoutMasks:
    """The random key of one pass, on the device, and how many masks were made from it."""

    def __init__(self, device: torch.device) -> None:
        self.key: Tensor = torch.empty(1, dtype=torch.int64, device=device).random_()
        self.masks = 0

    def next(self) -> int:
        """Return the number of the next mask."""
        self.masks += 1
        return self.masks


@part
def dropout_factor(key, mask, rows, p, BLOCK: tl.constexpr) -> tl.tensor:
    """The dropout factor: 0 with probability p, else 1/(1-p).  rows (R,) -> (R, BLOCK)."""
    quarter = tl.arange(0, BLOCK // 4)
    # Philox returns four numbers for each counter.
    count = rows[:, None] * (BLOCK // 4) + quarter[None, :]
    a, b, c, d = tl.rand4x(tl.load(key) + mask, count)
    drawn = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), [rows.shape[0], BLOCK])
    return tl.where(drawn >= p, 1 / (1 - p), 0.0)


@kernel("mask", "N")
def _norm_forward(
    x, g, gamma, beta, total, n, mean, rsigma, key, mask, N, D, eps, p,
    ADD: tl.constexpr, DROP: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    rows = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, BLOCK)
    valid = (rows < N)[:, None] & (c < D)[None, :]
    at = rows.to(tl.int64)[:, None] * D + c[None, :]
    s = tl.load(x + at, valid, 0.0).to(tl.float32)
    if ADD:
        more = tl.load(g + at, valid, 0.0).to(tl.float32)
        if DROP:
            more *= dropout_factor(key, mask, rows, p, BLOCK)
        # The rounded sum is normalised, as it is stored.
        rounded = (s + more).to(total.dtype.element_ty)
        tl.store(total + at, rounded, valid)
        s = rounded.to(tl.float32)
    mu = tl.sum(s, 1) / D
    d = tl.where(valid, s - mu[:, None], 0.0)
    r = 1 / tl.sqrt(tl.sum(d * d, 1) / D + eps)
    w = tl.load(gamma + c, c < D, 0.0)
    b = tl.load(beta + c, c < D, 0.0)
    tl.store(n + at, (d * r[:, None] * w[None, :] + b[None, :]).to(n.dtype.element_ty), valid)
    tl.store(mean + rows, mu, rows < N)
    tl.store(rsigma + rows, r, rows < N)


@kernel("mask", "N")
def _norm_backward(
    dn, dtotal, total, mean, rsigma, gamma, dx, dg, sums, key, mask, N, D, p,
    PLUS: tl.constexpr, ADD: tl.constexpr, DROP: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    c = tl.arange(0, BLOCK)
    w = tl.load(gamma + c, c < D, 0.0)
    dgamma = tl.zeros([BLOCK], tl.float32)
    dbeta = tl.zeros([BLOCK], tl.float32)
    for begin in range(tl.program_id(0) * R, N, tl.num_programs(0) * R):
        rows = begin + tl.arange(0, R)
        valid = (rows < N)[:, None] & (c < D)[None, :]
        at = rows.to(tl.int64)[:, None] * D + c[None, :]
        d_n = tl.load(dn + at, valid, 0.0).to(tl.float32)
        mu = tl.load(mean + rows, rows < N, 0.0)
        r = tl.load(rsigma + rows, rows < N, 0.0)
        normal = tl.where(valid, (tl.load(total + at, valid, 0.0).to(tl.float32) - mu[:, None]) * r[:, None], 0.0)
        dgamma += tl.sum(d_n * normal, 0)
        dbeta += tl.sum(d_n, 0)
        d_n *= w[None, :]
        along = tl.sum(d_n * normal, 1) / D
        level = tl.sum(d_n, 1) / D
        d = (d_n - normal * along[:, None] - level[:, None]) * r[:, None]
        if PLUS:
            d += tl.load(dtotal + at, valid, 0.0).to(tl.float32)
        tl.store(dx + at, d.to(dx.dtype.element_ty), valid)
        if ADD:
            if DROP:
                d *= dropout_factor(key, mask, rows, p, BLOCK)
            tl.store(dg + at, d.to(dg.dtype.element_ty), valid)
    place = sums + tl.program_id(0).to(tl.int64) * 2 * D + c
    tl.store(place, dgamma, c < D)
    tl.store(place + D, dbeta, c < D)


def _norm_sizes(D: int) -> tuple[int, int, int]:
    """Return rows and columns of a program's block, and its warps."""
    block = max(16, power_of_2(D))
    rows = max(1, NORM_ELEMENTS // block)
    return rows, block, max(4, min(16, block // 512))


class _ResidualNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        x: Tensor,
        g: Tensor | None,
        gamma: Tensor,
        beta: Tensor,
        eps: float,
        drop: tuple[float, Tensor | None, int],
        kind: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        D = x.shape[-1]
        N = x.numel() // D
        p, key, mask = drop
        x, g = x.contiguous(), None if g is None else g.contiguous()
        total = x if g is None else torch.empty_like(x)
        n = torch.empty_like(x, dtype=kind)
        mean, rsigma = x.new_empty(2, N, dtype=torch.float32)
        R, block, warps = _norm_sizes(D)
        if N:
            _norm_forward[((N + R - 1) // R,)](
                x, x if g is None else g, gamma, beta, total, n, mean, rsigma, mean if key is None else key, mask,
                N, D, eps, p, g is not None, p > 0, R, block, num_warps=warps,
            )  # fmt: skip
        ctx.save_for_backward(total, gamma, mean, rsigma, key)
        ctx.p, ctx.mask, ctx.kind = p, mask, None if g is None else g.dtype
        ctx.set_materialize_grads(False)
        return total, n

    @staticmethod
    def backward(ctx: Any, dtotal: Tensor | None, dn: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        total, gamma, mean, rsigma, key = ctx.saved_tensors
        D = total.shape[-1]
        N = total.numel() // D
        dn = torch.zeros_like(total) if dn is None else dn.contiguous()
        dtotal = None if dtotal is None else dtotal.contiguous()
        dx = torch.empty_like(total)
        dg = None if ctx.kind is None else torch.empty_like(total, dtype=ctx.kind)
        R, block, warps = _norm_sizes(D)
        programs = min((N + R - 1) // R, NORM_PROGRAMS)
        sums = gamma.new_empty(programs, 2, D, dtype=torch.float32)
        if N:
            _norm_backward[(programs,)](
                dn, dn if dtotal is None else dtotal, total, mean, rsigma, gamma, dx, dx if dg is None else dg, sums,
                mean if key is None else key, ctx.mask, N, D, ctx.p,
                dtotal is not None, dg is not None, ctx.p > 0, R, block, num_warps=warps,
            )  # fmt: skip
        dgamma, dbeta = sums.sum(0).to(gamma.dtype)
        return dx, dg, dgamma, dbeta, None, None, None


def residual_norm(
    x: Tensor, g: Tensor | None, LN: torch.nn.LayerNorm, p: float, chance: DropoutMasks | None, kind: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Return x' = x + dropout(g), and LN(x') as `kind`; without g it is x itself.  x, g (…, D) -> (…, D) each."""
    dropped = g is not None and p > 0 and chance is not None
    drop = (p, chance.key, chance.next()) if dropped and chance is not None else (0.0, None, 0)
    return _ResidualNorm.apply(x, g, LN.weight, LN.bias, LN.eps, drop, kind)  # type: ignore[no-any-return]


@kernel("mask", "N")
def _relu_forward(
    x, b, y, key, mask, N, D, p, DROP: tl.constexpr, R: tl.constexpr, BLOCK: tl.constexpr
) -> None:  # fmt: skip
    rows = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    valid = (rows < N)[:, None] & (c < D)[None, :]
    at = rows.to(tl.int64)[:, None] * D + c[None, :]
    s = tl.load(x + at, valid, 0.0).to(tl.float32) + tl.load(b + c, c < D, 0.0).to(tl.float32)[None, :]
    s = tl.where(s < 0, 0.0, s)  # NaN stays
    if DROP:
        # Rows are counted as if every block of columns were a row of its own.
        s *= dropout_factor(key, mask, rows * tl.num_programs(1) + tl.program_id(1), p, BLOCK)
    tl.store(y + at, s.to(y.dtype.element_ty), valid)


@kernel("N")
def _relu_backward(dy, y, dx, sums, N, D, p, R: tl.constexpr, BLOCK: tl.constexpr) -> None:
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    db = tl.zeros([BLOCK], tl.float32)
    for begin in range(tl.program_id(0) * R, N, tl.num_programs(0) * R):
        rows = begin + tl.arange(0, R)
        valid = (rows < N)[:, None] & (c < D)[None, :]
        at = rows.to(tl.int64)[:, None] * D + c[None, :]
        d = tl.load(dy + at, valid, 0.0).to(tl.float32) / (1 - p)
        d = tl.where(tl.load(y + at, valid, 0.0).to(tl.float32) > 0, d, 0.0)
        db += tl.sum(d, 0)
        tl.store(dx + at, d.to(dx.dtype.element_ty), valid)
    tl.store(sums + tl.program_id(0).to(tl.int64) * D + c, db, c < D)


def _relu_sizes(D: int) -> tuple[int, int]:
    block = max(16, min(RELU_COLUMNS, power_of_2(D)))
    return RELU_ELEMENTS // block, block


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, b: Tensor, p: float, key: Tensor | None, mask: int) -> Tensor:  # noqa: ANN401
        D = x.shape[-1]
        N = x.numel() // D
        x = x.contiguous()
        y = torch.empty_like(x)
        R, block = _relu_sizes(D)
        if N:
            grid = ((N + R - 1) // R, (D + block - 1) // block)
            _relu_forward[grid](x, b, y, x if key is None else key, mask, N, D, p, p > 0, R, block, num_warps=4)
        ctx.save_for_backward(y, b)
        ctx.p = p
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        y, b = ctx.saved_tensors
        D = y.shape[-1]
        N = y.numel() // D
        dx = torch.empty_like(y)
        R, block = _relu_sizes(D)
        programs = min((N + R - 1) // R, RELU_PROGRAMS)
        sums = torch.empty(programs, D, dtype=torch.float32, device=y.device)
        if N:
            grid = (programs, (D + block - 1) // block)
            _relu_backward[grid](dy.contiguous(), y, dx, sums, N, D, ctx.p, R, block, num_warps=4)
        return dx, sums.sum(0).to(b.dtype), None, None, None


def relu_dropout(x: Tensor, b: Tensor, p: float, chance: DropoutMasks | None) -> Tensor:
    """Return dropout(relu(x + b)), of x's type.  x (…, D), b (D,) -> (…, D)."""
    dropped = p > 0 and chance is not None
    key, mask = (chance.key, chance.next()) if dropped and chance is not None else (None, 0)
    return _ReluDropout.apply(x, b, p if dropped else 0.0, key, mask)  # type: ignore[no-any-return]
