"""One step of LSTM or GRU after its products by one kernel, and its backward step by another.

The references are `heedful.fused.cpu.recurrence`, whose buffers these work on (gates after their functions are kept in
place of the sums), and `heedful.models.rnn` for a step of decoding. A program has some numbers of one row; it computes
its position from t, so that all steps are launched alike, with the same pointers.

Also what other kernels of one step share: σ and tanh, and `demand`, which checks tensors once and not at every step.
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
BLOCK = 256  # numbers of a row that a program works on
WARPS = 2


def steppable(x: Tensor) -> bool:
    """Whether steps on this tensor may be taken by kernels: where kernels are used at all, in fp32 or fp64."""
    return x.dtype in KINDS and usable(x)


def pitch(name: str, rows: Tensor) -> int:
    """Return how many numbers lie from one row to the next.  rows (…, W): the rows may be parts of wider ones."""
    step, before = 0, 1
    even = rows.shape[-1] <= 1 or rows.stride(-1) == 1
    for size, stride in reversed(list(zip(rows.shape[:-1], rows.stride()[:-1], strict=True))):
        if size > 1:
            step = step or stride
            even = even and stride == step * before
        before *= size
    if rows.numel() and not even:
        raise ShapeError(f"{name} has strides {rows.stride()} for {tuple(rows.shape)}: its rows must follow evenly")
    return step or rows.shape[-1]


def counted(*widths: int) -> tuple[int, ...]:
    """Return widths and strides counted in a unit of 4 or 1, and the unit.

    Triton distinguishes numbers only by whether they are multiples of 16. Where all are multiples of 4, as 1,000 is, a
    kernel that multiplies by 4 itself can fetch 16 bytes at once, too.
    """
    unit = 1 if any(width % 4 for width in widths) else 4
    return *(width // unit for width in widths), unit


def demand(tensors: Mapping[str, tuple[Tensor, tuple[int, ...]]], pieces: bool = False) -> None:
    """Raise ShapeError for tensors that a kernel would misread: wrong shape, not contiguous, or not like the first.

    With `pieces` only the last axis must be contiguous. A mask, of bool, need not be of the same type.
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


# σ and tanh by exp alone: Triton's interpreter has nothing else, and a GPU's exp is fast. Both are right to about one
# rounding of 1 (6e-8 in fp32), not of the result. PTX's `tanh.approx` is twice as fast, but right to 5e-4 only.


@part
def sigma(x) -> tl.tensor:
    """1 / (1 + exp(-x)): 0 and 1 at the ends, since exp becomes infinite or 0 there."""
    return 1 / (1 + tl.exp(-x))


@part
def tanh(x) -> tl.tensor:
    """1 - 2 / (1 + exp(2x)): -1 and 1 at the ends."""
    return 1 - 2 / (1 + tl.exp(2 * x))


@kernel("t", "T", "B")
def _lstm(
    gates, u, m, m_after, s_after, t, T, B, D, width, UNIT: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    # KEEP: the sums are in the gates, which are kept there; otherwise they are x and u, and no gate is kept.
    D *= UNIT
    width *= UNIT
    b, n = tl.program_id(0), tl.program_id(2)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = d < D
    at = ((n * T + t).to(tl.int64) * B + b) * width + d
    i = tl.load(gates + at, there, 0.0)
    f = tl.load(gates + at + D, there, 0.0)
    g = tl.load(gates + at + 2 * D, there, 0.0)
    o = tl.load(gates + at + 3 * D, there, 0.0)
    if not KEEP:
        i += tl.load(u + at, there, 0.0)
        f += tl.load(u + at + D, there, 0.0)
        g += tl.load(u + at + 2 * D, there, 0.0)
        o += tl.load(u + at + 3 * D, there, 0.0)
    state = ((n * (T + 1) + t).to(tl.int64) * B + b) * D + d
    before = tl.load(m + state, there, 0.0)
    i, f, g, o = sigma(i), sigma(f), tanh(g), sigma(o)
    after = f * before + i * g
    tl.store(m_after + state, after, there)
    tl.store(s_after + state, o * tanh(after), there)
    if KEEP:
        tl.store(gates + at, i, there)
        tl.store(gates + at + D, f, there)
        tl.store(gates + at + 2 * D, g, there)
        tl.store(gates + at + 3 * D, o, there)


@kernel("t", "T", "B")
def _lstm_back(
    gates, m, m_after, ds_after, dm_after, dm, d_gates,
    t, T, B, D, width, d_width, UNIT: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    D *= UNIT
    width *= UNIT
    d_width *= UNIT
    b, n = tl.program_id(0), tl.program_id(2)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = d < D
    row = (n * T + t).to(tl.int64) * B + b
    at, back = row * width + d, row * d_width + d
    state = ((n * (T + 1) + t).to(tl.int64) * B + b) * D + d
    i = tl.load(gates + at, there, 0.0)
    f = tl.load(gates + at + D, there, 0.0)
    g = tl.load(gates + at + 2 * D, there, 0.0)
    o = tl.load(gates + at + 3 * D, there, 0.0)
    bent = tanh(tl.load(m_after + state, there, 0.0))
    ds = tl.load(ds_after + state, there, 0.0)
    slope = tl.load(dm_after + state, there, 0.0) + ds * o * (1 - bent * bent)
    tl.store(d_gates + back, slope * g * i * (1 - i), there)
    tl.store(d_gates + back + D, slope * tl.load(m + state, there, 0.0) * f * (1 - f), there)
    tl.store(d_gates + back + 2 * D, slope * i * (1 - g * g), there)
    tl.store(d_gates + back + 3 * D, ds * bent * o * (1 - o), there)
    tl.store(dm + state, tl.load(dm + state, there, 0.0) + slope * f, there)


@kernel("t", "T", "B")
def _gru(gates, u, s, s_after, t, T, B, D, width, UNIT: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr) -> None:
    # KEEP: n, r, z, u are the blocks of the gates; otherwise r, z, n are those of x and of u, and no gate is kept.
    D *= UNIT
    width *= UNIT
    b, n = tl.program_id(0), tl.program_id(2)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = d < D
    at = ((n * T + t).to(tl.int64) * B + b) * width + d
    if KEEP:
        new = tl.load(gates + at, there, 0.0)
        r = tl.load(gates + at + D, there, 0.0)
        z = tl.load(gates + at + 2 * D, there, 0.0)
        recalled = tl.load(gates + at + 3 * D, there, 0.0)
    else:
        r = tl.load(gates + at, there, 0.0) + tl.load(u + at, there, 0.0)
        z = tl.load(gates + at + D, there, 0.0) + tl.load(u + at + D, there, 0.0)
        new = tl.load(gates + at + 2 * D, there, 0.0)
        recalled = tl.load(u + at + 2 * D, there, 0.0)
    state = ((n * (T + 1) + t).to(tl.int64) * B + b) * D + d
    before = tl.load(s + state, there, 0.0)
    r, z = sigma(r), sigma(z)
    new = tanh(new + r * recalled)
    tl.store(s_after + state, new + z * (before - new), there)
    if KEEP:
        tl.store(gates + at, new, there)
        tl.store(gates + at + D, r, there)
        tl.store(gates + at + 2 * D, z, there)


@kernel("t", "T", "B")
def _gru_back(
    gates, s, ds_after, ds, d_gates, t, T, B, D, width, d_width, UNIT: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    D *= UNIT
    width *= UNIT
    d_width *= UNIT
    b, n = tl.program_id(0), tl.program_id(2)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = d < D
    row = (n * T + t).to(tl.int64) * B + b
    at, back = row * width + d, row * d_width + d
    state = ((n * (T + 1) + t).to(tl.int64) * B + b) * D + d
    new = tl.load(gates + at, there, 0.0)
    r = tl.load(gates + at + D, there, 0.0)
    z = tl.load(gates + at + 2 * D, there, 0.0)
    recalled = tl.load(gates + at + 3 * D, there, 0.0)
    slope = tl.load(ds_after + state, there, 0.0)
    d_new = slope * (1 - z) * (1 - new * new)
    tl.store(d_gates + back, d_new, there)
    tl.store(d_gates + back + D, d_new * recalled * r * (1 - r), there)
    tl.store(d_gates + back + 2 * D, slope * (tl.load(s + state, there, 0.0) - new) * z * (1 - z), there)
    tl.store(d_gates + back + 3 * D, d_new * r, there)
    tl.store(ds + state, tl.load(ds + state, there, 0.0) + slope * z, there)


def _grid(N: int, B: int, D: int) -> tuple[int, int, int]:
    return B, (D + BLOCK - 1) // BLOCK, N


class _CellSteps:
    """N layers on their way through T steps.  gates (N, T, B, 4D), states (N, T+1, B, D) each.

    Rows of gates, and of their gradients, may be parts of wider rows.
    """

    def __init__(self, gates: Tensor, *states: Tensor) -> None:
        N, T, B, width = gates.shape
        D = width // 4
        named = {name: (side, (N, T + 1, B, D)) for name, side in zip("sm", states, strict=False)}
        demand({"gates": (gates, (N, T, B, 4 * D)), **named}, pieces=True)
        demand(named)
        self.widths, self.grid = (D, pitch("gates", gates)), _grid(N, B, D)
        self.sizes = (T, B, *counted(*self.widths))
        self.gates, self.states = gates, states
        self.after = tuple(side[:, 1:] for side in states)
        self.empty = gates.numel() == 0

    def _turn(self, d: Tensor, *slopes: Tensor) -> None:
        side = tuple(self.states[0].shape)
        named = {name: (slope, side) for name, slope in zip(("ds", "dm"), slopes, strict=False)}
        demand({"d": (d, tuple(self.gates.shape)), **named}, pieces=True)
        demand(named)
        self.sizes = (*self.sizes[:2], *counted(*self.widths, pitch("d", d)))
        self.d, self.slopes = d, slopes
        self.slopes_after = tuple(side[:, 1:] for side in slopes)


class LstmSteps(_CellSteps):
    """The LSTM's steps.  gates (N, T, B, 4D): i, f, g, o; s, m (N, T+1, B, D): the states, from the first on."""

    def __init__(self, gates: Tensor, s: Tensor, m: Tensor) -> None:
        super().__init__(gates, s, m)

    def forward(self, t: int) -> None:
        """From the sums in `gates[:, t]` and `m[:, t]` to the gates, in their place, and the states at t + 1."""
        (_, m), (s_after, m_after) = self.states, self.after
        if not self.empty:
            _lstm[self.grid](
                self.gates, self.gates, m, m_after, s_after, t, *self.sizes, True, BLOCK, num_warps=WARPS
            )  # fmt: skip

    def begin_backward(self, d: Tensor, ds: Tensor, dm: Tensor) -> None:
        """Begin the backward pass.  d (N, T, B, 4D): room for the sums' gradients; ds, dm (N, T+1, B, D)."""
        self._turn(d, ds, dm)

    def backward(self, t: int) -> None:
        """From `ds[:, t + 1]` and `dm[:, t + 1]`, which must be complete, to `d[:, t]`; `dm[:, t]` gets its share."""
        (_, m), (_, m_after), (_, dm), (ds_after, dm_after) = self.states, self.after, self.slopes, self.slopes_after
        if not self.empty:
            _lstm_back[self.grid](
                self.gates, m, m_after, ds_after, dm_after, dm, self.d, t, *self.sizes, BLOCK,
                num_warps=WARPS,
            )  # fmt: skip


class GruSteps(_CellSteps):
    """The GRU's steps.  gates (N, T, B, 4D): n, r, z, u; s (N, T+1, B, D): the states, from the first on."""

    def __init__(self, gates: Tensor, s: Tensor) -> None:
        super().__init__(gates, s)

    def forward(self, t: int) -> None:
        """From the sums in `gates[:, t]` and `s[:, t]` to the gates, in their place, and `s[:, t + 1]`."""
        if not self.empty:
            _gru[self.grid](
                self.gates, self.gates, self.states[0], self.after[0], t, *self.sizes, True, BLOCK, num_warps=WARPS
            )  # fmt: skip

    def begin_backward(self, d: Tensor, ds: Tensor) -> None:
        """Begin the backward pass.  d (N, T, B, 4D): room for the sums' gradients; ds (N, T+1, B, D)."""
        self._turn(d, ds)

    def backward(self, t: int) -> None:
        """From `ds[:, t + 1]`, which must be complete, to `d[:, t]`; `ds[:, t]` gets what does not go through U."""
        if not self.empty:
            _gru_back[self.grid](
                self.gates, self.states[0], self.slopes_after[0], self.slopes[0], self.d, t, *self.sizes, BLOCK,
                num_warps=WARPS,
            )  # fmt: skip


def _checked(x: Tensor, u: Tensor, state: tuple[Tensor, ...], gates: int, states: int) -> tuple[Tensor, ...]:
    """Return all of them in one piece, if they fit together."""
    if len(state) != states or x.dim() != 2:
        raise ShapeError(f"x (R, {gates}·D) and {states} of the state are needed; given {tuple(x.shape)}, {len(state)}")
    R, D = x.shape[0], state[0].shape[-1]
    x, u, *state_ = (tensor.contiguous() for tensor in (x, u, *state))
    sides = {name: (side, (R, D)) for name, side in zip("sm", state_, strict=False)}
    demand({"x": (x, (R, gates * D)), "u": (u, (R, gates * D)), **sides})
    return x, u, *state_


@no_compile
def lstm_cell(x: Tensor, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """`cells.lstm`, without a gradient.  x (R, 4D), u (R, 4D), s, m (R, D) -> s, m (R, D)."""
    x, u, _, m = _checked(x, u, state, 4, 2)
    s_after, m_after = torch.empty_like(m), torch.empty_like(m)
    R, D = m.shape
    if m.numel():
        with torch.cuda.device_of(m):
            _lstm[_grid(1, R, D)](
                x, u, m, m_after, s_after, 0, 1, R, *counted(D, 4 * D), False, BLOCK, num_warps=WARPS
            )  # fmt: skip
    return s_after, m_after


@no_compile
def gru_cell(x: Tensor, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """`cells.gru`, without a gradient.  x (R, 3D), u (R, 3D), s (R, D) -> s (R, D)."""
    x, u, s = _checked(x, u, state, 3, 1)
    after = torch.empty_like(s)
    R, D = s.shape
    if s.numel():
        with torch.cuda.device_of(s):
            _gru[_grid(1, R, D)](x, u, s, after, 0, 1, R, *counted(D, 3 * D), False, BLOCK, num_warps=WARPS)
    return (after,)
