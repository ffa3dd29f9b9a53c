"""A recurrent layer over all steps, with its gradient written by hand: what training runs instead of `cells`.

`cells` says what is computed; here it is computed again, in place, in buffers for all T steps, and nothing is recorded
for autograd. On the way back only what waits for the step after it is worked out step by step; the gradients of all
weights are a few large products over all T·B rows at the end. `recurrence_cells` has the kinds, `recurrence_attention`
what a decoder asks; `recurrence_encoder` and `recurrence_decoder` make operations of them.

N layers go side by side (the two directions of an encoder; 1 for a decoder), each with weights of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor

__all__ = ["Layer", "Views", "own_precision", "span", "steps"]

Views = tuple[Tensor, ...]  # what one step sees of some buffers


def span(T: int, device: torch.device) -> int:
    """How many steps are taken together where they need not wait for each other, and no product is worked out.

    One on the CPU, where what a step has just written is still in the cache; all where every call has its price.
    """
    return 1 if device.type == "cpu" else T


def own_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Compute in the weights' precision, also where autocast is on: what sums are added to must not be rounded."""
    known = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if known else nullcontext()


def steps(*buffers: Tensor) -> list[Views]:
    """Return what each step sees of some buffers (N, T, …): cut once, because a cut costs as much as a small sum."""
    return list(zip(*(buffer.unbind(1) for buffer in buffers), strict=True))


class Layer(ABC):
    """N layers on their way through T steps.

    `gates` (N, T, B, blocks·D) holds the gates after their functions, `s` (N, T+1, B, D) the states from the first on,
    and `m` the same for the LSTM's cell states. The blocks from `state` on are what U s is added to; the first
    `inputs` are what the input's share is added to.
    """

    blocks: ClassVar[int]  # how many numbers are kept for each number of the state
    state: ClassVar[int] = 0  # the first block that U s is added to
    inputs: ClassVar[int]  # how many blocks the input is added to

    bias: Tensor  # (N, 1, 1, blocks·D), on the way there
    ds: Tensor  # on the way back: the states' gradients, and those of the sums in the gates
    dm: Tensor | None
    d: Tensor

    def __init__(self, U: Tensor, gates: Tensor, s: Tensor, m: Tensor | None = None) -> None:
        self.U, self.gates, self.s, self.m = U, gates, s, m
        self.D, T = s.shape[-1], gates.shape[1]
        self.span = span(T, gates.device)
        self.by_input = self._parts(gates)[1]
        self.U_t = U.transpose(1, 2)

    def _parts(self, gates: Tensor) -> tuple[Tensor, Tensor]:
        return gates[..., self.state * self.D :], gates[..., : self.inputs * self.D]

    def _blocks(self, gates: Tensor) -> Tensor:
        return gates.view(*gates.shape[:-1], self.blocks, self.D)

    @classmethod
    def begin(
        cls,
        T: int,
        U: Tensor,
        bias: tuple[Tensor, Tensor],
        first: tuple[Tensor, ...],
        gates: Tensor | None = None,
    ) -> Layer:
        """Make room.  U (N, gates·D, D), bias: of the input and of the state, (N, gates·D); first (N, B, D).

        gates (N, T, B, blocks·D): room for them, if there is any.
        """
        N, B, D = first[0].shape
        room = [side.new_empty(N, T + 1, B, D) for side in first]
        for states, side in zip(room, first, strict=True):
            states[:, 0] = side
        layer = cls(U, U.new_empty(N, T, B, cls.blocks * D) if gates is None else gates, *room)
        layer.bias = layer.gather(*bias)[:, None, None]
        layer.sums = steps(*layer._parts(layer.gates), layer.s[:, :-1])
        layer.views = layer.cut()
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

    def open(self, t: int) -> None:
        """Add the bias to what was projected, if step t begins a span."""
        if t % self.span == 0:
            self.add_bias(slice(t, t + self.span))

    def add_bias(self, at: slice) -> None:
        """Add the bias to what was projected for some steps."""
        self.by_input[:, at].add_(self._parts(self.bias)[1])

    def add(self, t: int, value: Tensor, W_t: Tensor) -> None:
        """Add the share of an input that is known only now.  value (N, B, K), W_t (N, K, gates·D), arranged."""
        self.sums[t][1].baddbmm_(value, W_t)

    def go(self, t: int) -> None:
        """Take step t: from `s[:, t]` to `s[:, t + 1]`."""
        by_state, _, s = self.sums[t]
        by_state.baddbmm_(s, self.U_t)
        self.gate(t)

    def gate(self, t: int) -> None:
        """From the sums in the gates of step t to the next state."""
        self.activate(self.views[t])

    @abstractmethod
    def cut(self) -> list[Views]:
        """Return what `activate` takes, for each step."""

    @abstractmethod
    def activate(self, views: Views) -> None:
        """From the sums in the gates to the next state."""

    def turn(self, ds: Tensor, dm: Tensor | None = None, d: Tensor | None = None) -> None:
        """Begin the way back.  ds, dm (N, T+1, B, D): what is known of the states' gradients; they are added to.

        d (N, T, B, blocks·D): room for the gates' gradients, if there is any.
        """
        self.ds, self.dm = ds, dm
        self.d = torch.empty_like(self.gates) if d is None else d
        self.d_state, self.d_input = self._parts(self.d)
        self.sums = steps(self.d_state, self.d_input, ds[:, :-1])
        self.ready()

    def ready(self) -> None:
        """Make room for the slopes, and cut what `ungate` needs."""
        N, _, B, width = self.gates.shape
        self.slope = self.gates.new_empty(N, self.span, B, width)
        self.slopes_of = [*self._blocks(self.slope).unbind(-2)]
        known = [*self._blocks(self.gates).unbind(-2)]
        for states in self.kept[2:]:
            known += [states[:, :-1], states[:, 1:]]
        self.spans = list(zip(*(torch.split(buffer, self.span, 1) for buffer in known), strict=True))
        self.views = self.cut_back()

    def back(self, t: int) -> None:
        """Take step t back: from `ds[:, t + 1]`, which must be whole, to the gates' gradients and into `ds[:, t]`."""
        self.ungate(t)
        d, _, ds = self.sums[t]
        ds.baddbmm_(d, self.U)

    def ungate(self, t: int) -> None:
        """From the gradient of the state after step t to that of the sums in its gates."""
        if (t + 1) % self.span == 0:
            self.slopes(self.spans[t // self.span])
        self.differentiate(t % self.span, self.views[t])

    @abstractmethod
    def slopes(self, known: Views) -> None:
        """Work out what gradients are multiplied with, for a span.  The blocks; the states before and after."""

    @abstractmethod
    def cut_back(self) -> list[Views]:
        """Return what `differentiate` takes, for each step."""

    @abstractmethod
    def differentiate(self, i: int, views: Views) -> None:
        """From the next state's gradient to that of the sums in the gates; the slopes are the i-th."""

    def spread(self, t: int, into: Tensor, W: Tensor) -> None:
        """Add the gradient of an input of step t.  into (N, B, K), W (N, gates·D, K), arranged."""
        into.baddbmm_(self.sums[t][1], W)

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
        # Copies: for some cells both are the same numbers, and autograd would keep one piece of memory for two weights.
        return self.restore(of_input, 1).clone(), of_state.clone()
