"""What kernels that take one step of a recurrence require of their tensors, checked once and not at every step."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
from torch import Tensor

from heedful.errors import ConfigError, ShapeError
from heedful.fused.triton.policy import usable

__all__ = ["KINDS", "counted", "demand", "pitch", "steppable"]

KINDS = (torch.float32, torch.float64)


def steppable(x: Tensor) -> bool:
    """Whether steps on this tensor may be taken by kernels: where kernels are used at all, in fp32 or fp64."""
    return x.dtype in KINDS and usable(x)


def pitch(name: str, rows: Tensor) -> int:
    """Return how many numbers lie from one row to the next.  rows (…, W): the rows may be parts of wider ones."""
    found, before = 0, 1
    even = rows.shape[-1] <= 1 or rows.stride(-1) == 1
    for size, stride in reversed(list(zip(rows.shape[:-1], rows.stride()[:-1], strict=True))):
        if size > 1:
            found = found or stride
            even = even and stride == found * before
        before *= size
    if rows.numel() and not even:
        raise ShapeError(f"{name} has strides {rows.stride()} for {tuple(rows.shape)}: its rows must follow evenly")
    return found or rows.shape[-1]


def counted(*widths: int) -> tuple[int, ...]:
    """Return widths and strides counted in a unit of 4 or 1, and the unit.

    Triton asks of a number only whether it is a multiple of 16. Where all are multiples of 4, as 1,000 is, a kernel
    that multiplies by 4 itself can fetch 16 bytes at once, too.
    """
    unit = 1 if any(width % 4 for width in widths) else 4
    return *(width // unit for width in widths), unit


def demand(tensors: Mapping[str, tuple[Tensor, tuple[int, ...]]], pieces: bool = False) -> None:
    """Refuse tensors that a kernel would misread: each must have its shape, lie in one piece, and be as the first is.

    With `pieces` only the last axis must lie in one piece. A mask, of bool, need not be of the same type.
    """
    name, (first, _) = next(iter(tensors.items()))
    if first.dtype not in KINDS:
        raise ShapeError(f"{name} is {first.dtype}; kernels take steps in torch.float32 or torch.float64")
    if not first.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        raise ConfigError(f"{name} is on '{first.device}', but kernels run on a CUDA device")
    for other, (tensor, shape) in tensors.items():
        if tuple(tensor.shape) != shape:
            raise ShapeError(f"{other} has shape {tuple(tensor.shape)}, expected {shape}")
        if tensor.dtype not in (first.dtype, torch.bool):
            raise ShapeError(f"{other} is {tensor.dtype}, but {name} is {first.dtype}")
        if tensor.device != first.device:
            raise ShapeError(f"{other} is on '{tensor.device}', but {name} on '{first.device}'")
        if not pieces and not tensor.is_contiguous():
            raise ShapeError(f"{other} has strides {tensor.stride()} for {shape}: it must lie in one piece")
