"""f(x Wᵀ + b) in fp32 on tensor cores: each product of two numbers is three products in TF32.

A GPU multiplies fp32 numbers on its general units; its tensor cores are ten times as fast, but round their inputs to
TF32, 11 bits. Here each input is the sum of two such numbers, x = x₁ + x₂, and x₁w₁ + x₁w₂ + x₂w₁ is summed up in fp32.
What is left out, x₂w₂, is below the rounding of fp32: the result is about as close to the exact one as cuBLAS' in fp32
(`tests/fused/test_linear_kernel.py`, `docs/lab/log.md`). The bias and the activation come with the product.

**A row of the result does not depend on the other rows**, bit for bit: every tile sums up in the same order, 32 columns
of x after 32, whatever its size. cuBLAS chooses the order by the number of rows, so that a sentence gets other bits in
another batch, and now and then, where two tokens are as good, another word.

`F.linear` is the definition. It is used in training, on CPUs, for other types, for widths that are no multiples of 32,
and where PyTorch may round to TF32 anyway.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from heedful.fused.triton.launch import interpreted, kernel
from heedful.fused.triton.policy import usable
from heedful.fused.triton.scaled_plain import products_are_rounded

if TYPE_CHECKING:
    from collections.abc import Callable

    import triton.language as tl

DEPTH = 32  # columns of x that are taken at a time: the width of x has to be a multiple of it
FUSED: dict[object, int] = {None: 0, F.relu: 1, F.silu: 2}  # activations that are computed with the product


class Tile(NamedTuple):
    """The part of the result that a program computes, its warps, and how many are needed to keep a GPU busy."""

    rows: int
    columns: int
    warps: int
    least: int


# Chosen by times on an H200 (docs/lab/log.md): K of 256 and 1,024, N from 256 to 8,000, and M from 1 to 5,120.
TILES = (Tile(128, 64, 8, 200), Tile(64, 64, 4, 256), Tile(64, 32, 4, 96), Tile(16, 32, 4, 0))
STAGES = 3


@kernel("M")
def _linear(
    x, w, b, y, M, N, K, x_row, w_row,
    BIAS: tl.constexpr, ACTIVATION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
) -> None:  # fmt: skip
    across = tl.cdiv(N, BN)
    m = (tl.program_id(0) // across).to(tl.int64) * BM + tl.arange(0, BM)
    n = (tl.program_id(0) % across) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    total = tl.zeros([BM, BN], tl.float32)
    for begin in range(0, K, BK):
        # From (M, K) and (N, K): neighbours in memory are multiplied and summed up.
        left = tl.load(x + m[:, None] * x_row + (begin + k)[None, :], (m < M)[:, None], 0.0)
        right = tl.load(w + n[None, :].to(tl.int64) * w_row + (begin + k)[:, None], (n < N)[None, :], 0.0)
        total = tl.dot(left, right, total, input_precision="tf32x3")
    if BIAS:
        total += tl.load(b + n, n < N, 0.0)[None, :]
    if ACTIVATION == 1:
        total = tl.where(total < 0, 0.0, total)  # NaN stays
    elif ACTIVATION == 2:
        total = total / (1 + tl.exp(-total))
    tl.store(y + m[:, None] * N + n[None, :], total, (m < M)[:, None] & (n < N)[None, :])


def linear(x: Tensor, W: Tensor, b: Tensor | None = None, f: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """Return f(x Wᵀ + b), by the kernel where it fits; it has no gradients.  x (…, K), W (N, K), b (N,) -> (…, N)."""
    if x.is_cuda and x.numel() and fits(x, W) and usable(x):
        return linear_kernel(x.reshape(-1, x.shape[-1]), W, b, f).view(*x.shape[:-1], len(W))
    y = F.linear(x, W, b)
    return y if f is None else f(y)


def fits(x: Tensor, W: Tensor) -> bool:
    """Whether the kernel computes this product."""
    return (
        x.dtype == W.dtype == torch.float32
        and x.shape[-1] % DEPTH == 0
        and W.stride(-1) == 1
        and not torch.is_autocast_enabled(x.device.type)
        and not products_are_rounded()
        and (interpreted() or _has_tf32(x.device))
    )


def linear_kernel(x: Tensor, W: Tensor, b: Tensor | None, f: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """Return the same for x (M, K), always by the kernel."""
    (M, K), N = x.shape, len(W)
    x = x if x.stride(1) == 1 else x.contiguous()
    tile, y = choose_tile(M, N), x.new_empty(M, N)
    with torch.cuda.device_of(x):
        _linear[(-(-M // tile.rows) * -(-N // tile.columns),)](
            x, W, x if b is None else b, y, M, N, K, x.stride(0), W.stride(0), b is not None, FUSED.get(f, 0),
            tile.rows, tile.columns, DEPTH, num_warps=tile.warps, num_stages=STAGES,
        )  # fmt: skip
    return y if f in FUSED or f is None else f(y)


def choose_tile(M: int, N: int) -> Tile:
    """Return the largest tile that is filled at least by half, and of which there are enough for a GPU.

    >>> choose_tile(32, 256)[:2], choose_tile(5120, 8000)[:2]
    ((16, 32), (128, 64))
    """
    return next(
        tile
        for tile in TILES
        if -(-M // tile.rows) * -(-N // tile.columns) >= tile.least and (tile.rows < 2 * M or tile is TILES[-1])
    )


@cache
def _has_tf32(device: torch.device) -> bool:
    """Whether a GPU's tensor cores have TF32: those from Ampere on."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
