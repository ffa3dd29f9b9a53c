"""An encoder's layer as one operation: all directions at once, without packing and without waiting for the device.

Padding is on the right. A sentence is turned round within its own length for the direction from right to left, so that
both read from the first column and neither meets padding before the sentence is over; what is worked out beyond its
end is never used, and gets no gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from heedful.kernels import aside
from heedful.models.recurrence import own_precision
from heedful.models.recurrence_fused import layer_kind

__all__ = ["read", "turned"]


@aside
def read(cell: str, x: Tensor, weights: tuple[Tensor, ...], lengths: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Read sentences in N directions.  x (N, S, B, K), lengths (B,) -> s (N, S, B, D), last states, each (N, B, D).

    `weights` are PyTorch's W (N, gates·D, K), U (N, gates·D, D), b_W and b_U (N, gates·D). The last states are where
    each sentence ends; for the LSTM the cell state follows.
    """
    with own_precision(x.device), torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        s, *last = _Read.apply(cell, x.to(weights[0].dtype), *weights, lengths)  # type: ignore[no-untyped-call]
    return s, tuple(last)


def turned(x: Tensor, lengths: Tensor) -> Tensor:
    """Turn each sentence round within its length; padding stays.  x (S, B, W), lengths (B,) -> (S, B, W)."""
    S, B, _ = x.shape
    j = torch.arange(S, device=x.device)[:, None]
    position = torch.where(j < lengths, lengths - 1 - j, j)
    rows = position * B + torch.arange(B, device=x.device)
    return _Rows.apply(x.flatten(0, 1), rows.flatten()).view(x.shape)  # type: ignore[no-untyped-call, no-any-return]


class _Context(FunctionCtx):
    """What the way there leaves for the way back."""

    saved_tensors: tuple[Tensor, ...]
    cell: str


class _Rows(torch.autograd.Function):
    """Rows in another order, which, taken twice, is the first: so the gradient goes the same way."""

    @staticmethod
    def forward(ctx: _Context, x: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx: _Context, d: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        return _Rows.apply(d, rows), None  # type: ignore[no-untyped-call]


class _Read(torch.autograd.Function):
    """The operation of `read`."""

    @staticmethod
    def forward(
        ctx: _Context, cell: str, x: Tensor, W: Tensor, U: Tensor, b_W: Tensor, b_U: Tensor, lengths: Tensor
    ) -> tuple[Tensor, ...]:
        N, S, B, _ = x.shape
        zero = x.new_zeros(N, B, U.shape[-1])
        layer = layer_kind(cell, U).begin(S, U, (b_W, b_U), (zero, zero) if cell == "lstm" else (zero,))
        W = layer.arrange(W)
        layer.project(x, W)
        for t in range(S):
            layer.open(t)
            layer.go(t)
        ends = lengths * B + torch.arange(B, device=x.device)
        ctx.cell = cell
        ctx.save_for_backward(x, W, ends, *layer.kept)
        ctx.set_materialize_grads(False)
        sides = (layer.s,) if layer.m is None else (layer.s, layer.m)
        return layer.s[:, 1:], *(side.flatten(1, 2).index_select(1, ends) for side in sides)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, d: Tensor | None, *d_last: Tensor | None) -> tuple[Tensor | None, ...]:
        x, W, ends, U, gates, *states = ctx.saved_tensors
        with own_precision(U.device):
            layer = layer_kind(ctx.cell, U)(U, gates, *states)
            sides = [torch.zeros_like(side) for side in states]
            if d is not None:
                sides[0][:, 1:] = d
            for side, found in zip(sides, d_last, strict=True):
                if found is not None:
                    side.flatten(1, 2).index_add_(1, ends, found)
            layer.turn(*sides)
            for t in reversed(range(gates.shape[1])):
                layer.back(t)
            return None, layer.dx(W), layer.dW(x), layer.dU(), *layer.db(), None
