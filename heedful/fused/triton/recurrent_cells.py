"""Kernels for one step of an LSTM or GRU, after its matrix products, forward and backward.

The references are `heedful.fused.cpu.recurrence`, which has the same buffers (the gates overwrite the sums), and
`heedful.models.rnn` for a step of decoding. A program computes a block of one row. It finds its offset from t, so that
all steps are launched with the same pointers.

The other kernels of one step use σ, tanh and `check_tensors`, which runs once for a layer, not at every step.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedful.errors import ConfigError, ShapeError
from heedful.fused.triton.launch import kernel, no_compile, part
from heedful.fused.triton.policy import usable

if TYPE_CHECKING:
    import triton.language as tl


KINDS = (torch.float32, torch.float64)
BLOCK = 256  # elements of a row for each program
WARPS = 2


def steppable(x: Tensor) -> bool:
    """Whether kernels compute the steps on this tensor: where kernels are usable, in fp32 or fp64."""
    return x.dtype in KINDS and usable(x)


def row_stride(name: str, rows: Tensor) -> int:
    """Return the stride from one row to the next.  rows (…, W): the rows may be parts of wider ones."""
    step, before = 0, 1
    even = rows.shape[-1] <= 1 or rows.stride(-1) == 1
    for size, stride in reversed(list(zip(rows.shape[:-1], rows.stride()[:-1], strict=True))):
        if size > 1:
            step = step or stride
            even = even and stride == step * before
        before *= size
    if rows.numel() and not even:
        raise ShapeError(f"{name} has strides {rows.stride()} for {tuple(rows.shape)}: its rows must be evenly spaced")
    return step or rows.shape[-1]


def in_units(*widths: int) -> tuple[int, ...]:
    """Return widths and strides as multiples of a unit of 4 or 1, and the unit.

    Triton specialises integers that are multiples of 16. Where all are multiples of 4, as 1,000 is, a kernel that
    multiplies by 4 itself can also load 16 bytes in one instruction.
    """
    unit = 1 if any(width % 4 for width in widths) else 4
    return *(width // unit for width in widths), unit


def check_tensors(tensors: Mapping[str, tuple[Tensor, tuple[int, ...]]], contiguous: bool = True) -> None:
    """Raise ShapeError for a tensor with a wrong shape, another type or device than the first, or not contiguous.

    A mask may be bool.
    """
    name, (first, _) = next(iter(tensors.items()))
    if first.dtype not in KINDS:
        raise ShapeError(f"{name} is {first.dtype}; kernels compute steps in torch.float32 or torch.float64")
    if not first.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        raise ConfigError(f"{name} is on '{first.device}', but kernels run on a CUDA device")
    for other, (tensor, shape) in tensors.items():
        if tuple(tensor.shape) != shape:
            raise ShapeError(f"{other} has shape {tuple(tensor.shape)}, expected {shape}")
        if tensor.dtype not in (first.dtype, torch.bool):
            raise ShapeError(f"{other} is {tensor.dtype}, but {name} is {first.dtype}")
        if tensor.device != first.device:
            raise ShapeError(f"{other} is on '{tensor.device}', but {name} on '{first.device}'")
        if contiguous and not tensor.is_contiguous():
            raise ShapeError(f"{other} has strides {tensor.stride()} for {shape}: it must be contiguous")


# σ and tanh by exp alone: Triton's interpreter has nothing else, and a GPU's exp is fast. Their absolute error is about
# 6e-8 in fp32. PTX's `tanh.approx` is twice as fast, but its error is 5e-4.


@part
def sigma(x) -> tl.tensor:
    """1 / (1 + exp(-x)): 0 and 1 in the limits, where exp is infinite or 0."""
    return 1 / (1 + tl.exp(-x))


@part
def tanh(x) -> tl.tensor:
    """1 - 2 / (1 + exp(2x)): -1 and 1 in the limits."""
    return 1 - 2 / (1 + tl.exp(2 * x))


@part
def _locate(t, T, B, D, BLOCK: tl.constexpr) -> tuple[tl.tensor, ...]:
    """A program's columns d, which of them are below D, its row of the gates, and its offsets in the states."""
    b, n = tl.program_id(0), tl.program_id(2)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = (n * T + t).to(tl.int64) * B + b
    state = ((n * (T + 1) + t).to(tl.int64) * B + b) * D + d
    return d, d < D, row, state


@part
def _load_blocks(gates, D, mask) -> tuple[tl.tensor, ...]:
    """The four blocks of the gates."""
    first, second = tl.load(gates, mask, 0.0), tl.load(gates + D, mask, 0.0)
    return first, second, tl.load(gates + 2 * D, mask, 0.0), tl.load(gates + 3 * D, mask, 0.0)


@part
def _store_blocks(gates, D, mask, first, second, third, fourth) -> None:
    tl.store(gates, first, mask)
    tl.store(gates + D, second, mask)
    tl.store(gates + 2 * D, third, mask)
    tl.store(gates + 3 * D, fourth, mask)


@kernel("t", "T", "B")
def _lstm(
    gates, u, m, m_after, s_after, t, T, B, D, width, UNIT: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    # KEEP: the sums are in the gates, which are kept there; otherwise they are x and u, and no gate is kept.
    D, width = D * UNIT, width * UNIT
    d, mask, row, state = _locate(t, T, B, D, BLOCK)
    at = row * width + d
    i, f, g, o = _load_blocks(gates + at, D, mask)
    if not KEEP:
        u_i, u_f, u_g, u_o = _load_blocks(u + at, D, mask)
        i, f, g, o = i + u_i, f + u_f, g + u_g, o + u_o
    before = tl.load(m + state, mask, 0.0)
    i, f, g, o = sigma(i), sigma(f), tanh(g), sigma(o)
    after = f * before + i * g
    tl.store(m_after + state, after, mask)
    tl.store(s_after + state, o * tanh(after), mask)
    if KEEP:
        _store_blocks(gates + at, D, mask, i, f, g, o)


@kernel("t", "T", "B")
def _lstm_back(
    gates, m, m_after, ds_after, dm_after, dm, d_gates,
    t, T, B, D, width, d_width, UNIT: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    D, width, d_width = D * UNIT, width * UNIT, d_width * UNIT
    d, mask, row, state = _locate(t, T, B, D, BLOCK)
    i, f, g, o = _load_blocks(gates + row * width + d, D, mask)
    tanh_m = tanh(tl.load(m_after + state, mask, 0.0))
    ds = tl.load(ds_after + state, mask, 0.0)
    d_m = tl.load(dm_after + state, mask, 0.0) + ds * o * (1 - tanh_m * tanh_m)
    d_f = d_m * tl.load(m + state, mask, 0.0) * f * (1 - f)
    d_i, d_g, d_o = d_m * g * i * (1 - i), d_m * i * (1 - g * g), ds * tanh_m * o * (1 - o)
    _store_blocks(d_gates + row * d_width + d, D, mask, d_i, d_f, d_g, d_o)
    tl.store(dm + state, tl.load(dm + state, mask, 0.0) + d_m * f, mask)


@kernel("t", "T", "B")
def _gru(gates, u, s, s_after, t, T, B, D, width, UNIT: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr) -> None:
    # KEEP: n, r, z, u are the blocks of the gates; otherwise r, z, n are those of x and of u, and no gate is kept.
    D, width = D * UNIT, width * UNIT
    d, mask, row, state = _locate(t, T, B, D, BLOCK)
    at = row * width + d
    if KEEP:
        n, r, z, u_n = _load_blocks(gates + at, D, mask)
    else:
        r = tl.load(gates + at, mask, 0.0) + tl.load(u + at, mask, 0.0)
        z = tl.load(gates + at + D, mask, 0.0) + tl.load(u + at + D, mask, 0.0)
        n = tl.load(gates + at + 2 * D, mask, 0.0)
        u_n = tl.load(u + at + 2 * D, mask, 0.0)
    before = tl.load(s + state, mask, 0.0)
    r, z = sigma(r), sigma(z)
    n = tanh(n + r * u_n)
    tl.store(s_after + state, n + z * (before - n), mask)
    if KEEP:
        tl.store(gates + at, n, mask)
        tl.store(gates + at + D, r, mask)
        tl.store(gates + at + 2 * D, z, mask)


@kernel("t", "T", "B")
def _gru_back(
    gates, s, ds_after, ds, d_gates, t, T, B, D, width, d_width, UNIT: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    D, width, d_width = D * UNIT, width * UNIT, d_width * UNIT
    d, mask, row, state = _locate(t, T, B, D, BLOCK)
    n, r, z, u_n = _load_blocks(gates + row * width + d, D, mask)
    d_s = tl.load(ds_after + state, mask, 0.0)
    d_n = d_s * (1 - z) * (1 - n * n)
    d_z = d_s * (tl.load(s + state, mask, 0.0) - n) * z * (1 - z)
    _store_blocks(d_gates + row * d_width + d, D, mask, d_n, d_n * u_n * r * (1 - r), d_z, d_n * r)
    tl.store(ds + state, tl.load(ds + state, mask, 0.0) + d_s * z, mask)


def _grid(N: int, B: int, D: int) -> tuple[int, int, int]:
    return B, (D + BLOCK - 1) // BLOCK, N


class _CellSteps:
    """T steps of N layers.  gates (N, T, B, 4D), states (N, T+1, B, D) each.

    Rows of gates, and of their gradients, may be parts of wider rows.
    """

    def __init__(self, gates: Tensor, *states: Tensor) -> None:
        N, T, B, width = gates.shape
        D = width // 4
        named = {name: (state, (N, T + 1, B, D)) for name, state in zip("sm", states, strict=False)}
        check_tensors({"gates": (gates, (N, T, B, 4 * D)), **named}, contiguous=False)
        check_tensors(named)
        self.widths, self.grid = (D, row_stride("gates", gates)), _grid(N, B, D)
        self.sizes = (T, B, *in_units(*self.widths))
        self.gates, self.states = gates, states
        self.after = tuple(state[:, 1:] for state in states)
        self.empty = gates.numel() == 0

    def begin_backward(self, d: Tensor, *d_states: Tensor) -> None:
        """Begin the backward pass.  d (N, T, B, 4D): a buffer for the sums' gradients; ds, dm (N, T+1, B, D)."""
        shape = tuple(self.states[0].shape)
        named = {name: (gradient, shape) for name, gradient in zip(("ds", "dm"), d_states, strict=False)}
        check_tensors({"d": (d, tuple(self.gates.shape)), **named}, contiguous=False)
        check_tensors(named)
        self.sizes = (*self.sizes[:2], *in_units(*self.widths, row_stride("d", d)))
        self.d, self.d_states = d, d_states
        self.d_after = tuple(gradient[:, 1:] for gradient in d_states)


class LstmSteps(_CellSteps):
    """Steps of an LSTM.  gates (N, T, B, 4D): i, f, g, o; states s, m (N, T+1, B, D), the first one included."""

    def forward(self, t: int) -> None:
        """Replace the sums in `gates[:, t]` by the gates, and compute the states at t + 1."""
        (_, m), (s_after, m_after) = self.states, self.after
        if not self.empty:
            _lstm[self.grid](
                self.gates, self.gates, m, m_after, s_after, t, *self.sizes, True, BLOCK, num_warps=WARPS
            )  # fmt: skip

    def backward(self, t: int) -> None:
        """Compute `d[:, t]` from `ds[:, t + 1]` and `dm[:, t + 1]`, which must be complete; add to `dm[:, t]`."""
        (_, m), (_, m_after), (_, dm), (ds_after, dm_after) = self.states, self.after, self.d_states, self.d_after
        if not self.empty:
            _lstm_back[self.grid](
                self.gates, m, m_after, ds_after, dm_after, dm, self.d, t, *self.sizes, BLOCK,
                num_warps=WARPS,
            )  # fmt: skip


class GruSteps(_CellSteps):
    """Steps of a GRU.  gates (N, T, B, 4D): n, r, z, u; state s (N, T+1, B, D), the first one included."""

    def forward(self, t: int) -> None:
        """Replace the sums in `gates[:, t]` by the gates, and compute `s[:, t + 1]`."""
        if not self.empty:
            _gru[self.grid](
                self.gates, self.gates, self.states[0], self.after[0], t, *self.sizes, True, BLOCK, num_warps=WARPS
            )  # fmt: skip

    def backward(self, t: int) -> None:
        """Compute `d[:, t]` from `ds[:, t + 1]`, which must be complete; add to `ds[:, t]` all but U's share."""
        if not self.empty:
            _gru_back[self.grid](
                self.gates, self.states[0], self.d_after[0], self.d_states[0], self.d, t, *self.sizes, BLOCK,
                num_warps=WARPS,
            )  # fmt: skip


def _checked(x: Tensor, u: Tensor, state: tuple[Tensor, ...], gates: int, states: int) -> tuple[Tensor, ...]:
    """Return all of them contiguous; raise ShapeError if their shapes do not match."""
    if len(state) != states or x.dim() != 2:
        raise ShapeError(f"expected x (R, {gates}·D) and {states} state tensors, got {tuple(x.shape)} and {len(state)}")
    R, D = x.shape[0], state[0].shape[-1]
    x, u, *state_ = (tensor.contiguous() for tensor in (x, u, *state))
    named = {name: (tensor, (R, D)) for name, tensor in zip("sm", state_, strict=False)}
    check_tensors({"x": (x, (R, gates * D)), "u": (u, (R, gates * D)), **named})
    return x, u, *state_


@no_compile
def lstm_cell(x: Tensor, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Compute `heedful.models.rnn.lstm`, without a gradient.  x (R, 4D), u (R, 4D), s, m (R, D) -> s, m (R, D)."""
    x, u, _, m = _checked(x, u, state, 4, 2)
    s_after, m_after = torch.empty_like(m), torch.empty_like(m)
    R, D = m.shape
    if m.numel():
        with torch.cuda.device_of(m):
            _lstm[_grid(1, R, D)](
                x, u, m, m_after, s_after, 0, 1, R, *in_units(D, 4 * D), False, BLOCK, num_warps=WARPS
            )  # fmt: skip
    return s_after, m_after


@no_compile
def gru_cell(x: Tensor, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Compute `heedful.models.rnn.gru`, without a gradient.  x (R, 3D), u (R, 3D), s (R, D) -> s (R, D)."""
    x, u, s = _checked(x, u, state, 3, 1)
    after = torch.empty_like(s)
    R, D = s.shape
    if s.numel():
        with torch.cuda.device_of(s):
            _gru[_grid(1, R, D)](x, u, s, after, 0, 1, R, *in_units(D, 3 * D), False, BLOCK, num_warps=WARPS)
    return (after,)
