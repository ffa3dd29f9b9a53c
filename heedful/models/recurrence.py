"""A recurrent layer over all steps, with its gradient written by hand: what training runs instead of `cells`.

`cells` says what is computed; here it is computed again, in place, in buffers for all T steps, and nothing is recorded
for autograd. On the way back only what waits for the step after it is worked out step by step; the gradients of all
weights are a few large products over all T·B rows at the end. `recurrence_encoder` and `recurrence_decoder` make
operations of it.

N layers go side by side (the two directions of an encoder; 1 for a decoder), each with weights of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor

__all__ = ["LAYERS", "GruLayer", "Layer", "LstmLayer", "RnnLayer", "own_precision", "span"]


def span(T: int, device: torch.device) -> int:
    """How many steps are taken together where they need not wait for each other, and no product is worked out.

    One on the CPU, where what a step has just written is still in the cache; all where every call has its price.
    """
    return 1 if device.type == "cpu" else T


def own_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Compute in the weights' precision, also where autocast is on: what sums are added to must not be rounded."""
    known = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if known else nullcontext()


class Layer(ABC):
    """N layers on their way through T steps.

    `gates` (N, T, B, blocks·D) holds the gates after their functions, `s` (N, T+1, B, D) the states from the first on,
    and `m` the same for the LSTM's cell states. The blocks from `state` on are what U s is added to; the first
    `len(rows)` are what the input's share is added to, its gates in the order of `rows`.
    """

    blocks: ClassVar[int]  # how many numbers are kept for each number of the state
    state: ClassVar[int] = 0  # the first block that U s is added to
    rows: ClassVar[tuple[int, ...]]  # which gate of the input, in PyTorch's order, is added to each block

    bias: Tensor  # (N, 1, 1, blocks·D), on the way there
    ds: Tensor  # on the way back: the states' gradients, and those of the sums in the gates
    dm: Tensor | None
    d: Tensor

    def __init__(self, U: Tensor, gates: Tensor, s: Tensor, m: Tensor | None = None) -> None:
        self.U, self.gates, self.s, self.m = U, gates, s, m
        self.D, T = s.shape[-1], gates.shape[1]
        self.by_state, self.by_input = self._parts(gates)
        self.U_t = U.transpose(1, 2)
        self.span = span(T, gates.device)

    def _parts(self, gates: Tensor) -> tuple[Tensor, Tensor]:
        return gates[..., self.state * self.D :], gates[..., : len(self.rows) * self.D]

    def _blocks(self, gates: Tensor) -> Tensor:
        return gates.view(*gates.shape[:-1], self.blocks, self.D)

    @classmethod
    def begin(cls, T: int, U: Tensor, bias: tuple[Tensor, Tensor], first: tuple[Tensor, ...]) -> Layer:
        """Make room.  U (N, gates·D, D), bias: of the input and of the state, (N, gates·D); first (N, B, D)."""
        N, B, D = first[0].shape
        room = [side.new_empty(N, T + 1, B, D) for side in first]
        for states, side in zip(room, first, strict=True):
            states[:, 0] = side
        layer = cls(U, U.new_empty(N, T, B, cls.blocks * D), *room)
        layer.bias = layer.gather(*bias)[:, None, None]
        return layer

    @property
    def kept(self) -> tuple[Tensor, ...]:
        """What the way back needs, in the order in which a layer is made of it."""
        return (self.U, self.gates, self.s) if self.m is None else (self.U, self.gates, self.s, self.m)

    def gather(self, b_W: Tensor, b_U: Tensor) -> Tensor:
        """Return one bias for all blocks.  b_W, b_U (N, gates·D) -> (N, blocks·D)."""
        return b_W + b_U

    def arrange(self, W: Tensor) -> Tensor:
        """Return an input's weights with the gates in the order of the blocks.  W (N, gates·D, K) -> the same."""
        return W

    def restore(self, d: Tensor, dim: int) -> Tensor:
        """Undo `arrange` for a gradient."""
        return d

    def project(self, x: Tensor, W: Tensor) -> None:
        """Work out the share of an input that is known of all steps.  x (N, T, B, K), W (N, gates·D, K), arranged."""
        for side, weights, room in zip(x, W, self.by_input, strict=True):
            torch.mm(side.flatten(0, 1), weights.t(), out=room.flatten(0, 1))

    def open(self, at: slice) -> None:
        """Add the bias to what was projected."""
        self.by_input[:, at].add_(self._parts(self.bias)[1])

    def add(self, t: int, value: Tensor, W_t: Tensor) -> None:
        """Add the share of an input that is known only now.  value (N, B, K), W_t (N, K, gates·D), arranged."""
        self.by_input[:, t].baddbmm_(value, W_t)

    def go(self, t: int) -> None:
        """Take step t: from `s[:, t]` to `s[:, t + 1]`."""
        self.by_state[:, t].baddbmm_(self.s[:, t], self.U_t)
        self.activate(t)

    @abstractmethod
    def activate(self, t: int) -> None:
        """From the sums in the gates to the next state."""

    def turn(self, ds: Tensor, dm: Tensor | None = None) -> None:
        """Begin the way back.  ds, dm (N, T+1, B, D): what is known of the states' gradients; they are added to."""
        self.ds, self.dm = ds, dm
        self.d = torch.empty_like(self.gates)
        self.d_state, self.d_input = self._parts(self.d)
        N, _, B, width = self.gates.shape
        self.slope = self.gates.new_empty(N, self.span, B, width)

    def back(self, t: int) -> None:
        """Take step t back: from `ds[:, t + 1]`, which must be whole, to the gates' gradients and into `ds[:, t]`."""
        if (t + 1) % self.span == 0:
            self.slopes(slice(t + 1 - self.span, t + 1))
        self.differentiate(t, t % self.span)
        self.ds[:, t].baddbmm_(self.d_state[:, t], self.U)

    @abstractmethod
    def slopes(self, at: slice) -> None:
        """Work out what gradients are multiplied with, for some steps."""

    @abstractmethod
    def differentiate(self, t: int, i: int) -> None:
        """From the next state's gradient to that of the sums in the gates; the slopes of step t are the i-th."""

    def spread(self, t: int, into: Tensor, W: Tensor) -> None:
        """Add the gradient of an input of step t.  into (N, B, K), W (N, gates·D, K), arranged."""
        into.baddbmm_(self.d_input[:, t], W)

    def dx(self, W: Tensor) -> Tensor:
        """The gradient of what was projected.  W (N, gates·D, K), arranged -> (N, T, B, K)."""
        return torch.bmm(self.d_input.flatten(1, 2), W).view(*self.gates.shape[:3], -1)

    def dW(self, x: Tensor) -> Tensor:
        """The gradient of the weights of an input.  x (N, T, B, K) -> (N, gates·D, K)."""
        return self.restore(torch.bmm(self.d_input.flatten(1, 2).transpose(1, 2), x.flatten(1, 2)), 1)

    def dU(self) -> Tensor:
        """The gradient of U: (N, gates·D, D)."""
        return torch.bmm(self.d_state.flatten(1, 2).transpose(1, 2), self.s[:, :-1].flatten(1, 2))

    def db(self) -> tuple[Tensor, Tensor]:
        """The gradients of the biases of the input and of the state: (N, gates·D)."""
        of_state, of_input = self._parts(self.d.sum((1, 2)))
        return self.restore(of_input, 1), of_state


class RnnLayer(Layer):
    """s_t = tanh(x + u)."""

    blocks, rows = 1, (0,)

    def activate(self, t: int) -> None:
        """s_t = tanh(x + u)."""
        torch.tanh(self.gates[:, t], out=self.s[:, t + 1])

    def slopes(self, at: slice) -> None:
        """1 - s²."""
        torch.square(self.s[:, 1:][:, at], out=self.slope).neg_().add_(1)

    def differentiate(self, t: int, i: int) -> None:
        """ds (1 - s²)."""
        torch.mul(self.ds[:, t + 1], self.slope[:, i], out=self.d[:, t])


class LstmLayer(Layer):
    """m_t = f m_{t-1} + i g, s_t = o tanh(m_t); the gates in the order i, f, g, o."""

    blocks, rows = 4, (0, 1, 2, 3)
    m: Tensor
    dm: Tensor

    def activate(self, t: int) -> None:
        """m_t = f m_{t-1} + i g, s_t = o tanh(m_t)."""
        D, gates = self.D, self.gates[:, t]
        i_f, g, o = gates[..., : 2 * D].sigmoid_(), gates[..., 2 * D : 3 * D].tanh_(), gates[..., 3 * D :].sigmoid_()
        m, s = self.m[:, t + 1], self.s[:, t + 1]
        torch.mul(i_f[..., D:], self.m[:, t], out=m)
        m.addcmul_(i_f[..., :D], g)
        torch.tanh(m, out=s)
        s.mul_(o)

    def slopes(self, at: slice) -> None:
        """How much dm changes i, f and g, how much ds changes o, and how much ds changes dm."""
        i, f, g, o = self._blocks(self.gates[:, at]).unbind(-2)
        to_i, to_f, to_g, to_o = self._blocks(self.slope).unbind(-2)
        bent = torch.tanh(self.m[:, 1:][:, at])
        torch.mul(i, g, out=to_i)
        torch.addcmul(i, to_i, g, value=-1, out=to_g)  # i (1 - g²)
        to_i.addcmul_(to_i, i, value=-1)  # g i (1 - i)
        torch.mul(self.m[:, :-1][:, at], f, out=to_f)
        to_f.addcmul_(to_f, f, value=-1)
        torch.mul(bent, o, out=to_o)
        self.to_m = torch.addcmul(o, to_o, bent, value=-1)  # o (1 - tanh² m)
        to_o.addcmul_(to_o, o, value=-1)

    def differentiate(self, t: int, i: int) -> None:
        """dm += ds o (1 - tanh² m); di, df and dg of dm, do of ds; m_{t-1} gets dm f."""
        D, ds, dm = self.D, self.ds[:, t + 1], self.dm[:, t + 1]
        d, slope = self._blocks(self.d[:, t]), self._blocks(self.slope[:, i])
        dm.addcmul_(ds, self.to_m[:, i])
        torch.mul(slope[..., :3, :], dm[..., None, :], out=d[..., :3, :])
        torch.mul(slope[..., 3, :], ds, out=d[..., 3, :])
        self.dm[:, t].addcmul_(dm, self.gates[:, t, :, D : 2 * D])


class GruLayer(Layer):
    """s_t = (1 - z) n + z s_{t-1}, n = tanh(x + r u).

    The blocks are n, r, z, u: the input is added to the first three and the state to the last three.
    """

    blocks, state, rows = 4, 1, (2, 0, 1)

    def gather(self, b_W: Tensor, b_U: Tensor) -> Tensor:
        """The input's bias for n, both for r and z, the state's for u."""
        D = self.D
        return torch.cat([b_W[:, 2 * D :], b_W[:, : 2 * D] + b_U[:, : 2 * D], b_U[:, 2 * D :]], dim=1)

    def arrange(self, W: Tensor) -> Tensor:
        """r, z, n -> n, r, z."""
        return torch.cat([W[:, 2 * self.D :], W[:, : 2 * self.D]], dim=1)

    def restore(self, d: Tensor, dim: int) -> Tensor:
        """n, r, z -> r, z, n."""
        n, r_z = torch.split(d, [self.D, 2 * self.D], dim)
        return torch.cat([r_z, n], dim)

    def open(self, at: slice) -> None:
        """Nothing of the input is in u."""
        super().open(at)
        self.gates[:, at, :, 3 * self.D :] = self.bias[..., 3 * self.D :]

    def activate(self, t: int) -> None:
        """n = tanh(x + r u), s_t = n + z (s_{t-1} - n)."""
        D, gates = self.D, self.gates[:, t]
        r_z, u = gates[..., D : 3 * D].sigmoid_(), gates[..., 3 * D :]
        n = gates[..., :D].addcmul_(r_z[..., :D], u).tanh_()
        torch.lerp(n, self.s[:, t], r_z[..., D:], out=self.s[:, t + 1])

    def slopes(self, at: slice) -> None:
        """How much ds changes each block; all of them are multiples of ds."""
        n, r, z, u = self._blocks(self.gates[:, at]).unbind(-2)
        to_n, to_r, to_z, to_u = self._blocks(self.slope).unbind(-2)
        free = 1 - z
        torch.mul(n, n, out=to_n)
        torch.addcmul(free, free, to_n, value=-1, out=to_n)  # (1 - z) (1 - n²)
        torch.mul(to_n, r, out=to_u)
        torch.mul(to_u, u, out=to_r)
        to_r.addcmul_(to_r, r, value=-1)
        torch.sub(self.s[:, :-1][:, at], n, out=to_z).mul_(free.mul_(z))

    def differentiate(self, t: int, i: int) -> None:
        """All blocks at once; what ds gives to s_{t-1} directly is ds z."""
        D, ds = self.D, self.ds[:, t + 1]
        torch.mul(self._blocks(self.slope[:, i]), ds[..., None, :], out=self._blocks(self.d[:, t]))
        self.ds[:, t].addcmul_(ds, self.gates[:, t, :, 2 * D : 3 * D])


LAYERS: dict[str, type[Layer]] = {"rnn": RnnLayer, "lstm": LstmLayer, "gru": GruLayer}
