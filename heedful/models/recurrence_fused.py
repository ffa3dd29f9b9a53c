"""The same layers and questions, with what stands between two products taken by one kernel; see `recurrence`.

They keep the same for the way back, so that either can take what the other has left. Which is used where is decided
here, for training; `cells` and `recurrent` ask the same question (`steppable`) for a step of decoding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.kernels import GruSteps, LstmSteps, Questions, askable, steppable
from heedful.models.recurrence import Layer, Views
from heedful.models.recurrence_attention import Additive, Dot
from heedful.models.recurrence_cells import LAYERS, GruLayer, LstmLayer

__all__ = ["FusedAdditive", "FusedDot", "FusedGru", "FusedLstm", "additive_kind", "dot_kind", "fused", "layer_kind"]


def layer_kind(cell: str, U: Tensor) -> type[Layer]:
    """Return the layer of a cell whose weights lie there.  U (N, gates·D, D)."""
    return FUSED[cell] if cell in FUSED and steppable(U) else LAYERS[cell]


def additive_kind(keys: Tensor) -> type[Additive]:
    """Return how additive questions about these keys are asked.  keys (B, S, A)."""
    return FusedAdditive if steppable(keys) and askable(keys.shape[1]) else Additive


def dot_kind(keys: Tensor) -> type[Dot]:
    """Return how questions by dot product about these keys are asked.  keys (B, S, A)."""
    return FusedDot if steppable(keys) and askable(keys.shape[1]) else Dot


def fused(U: Tensor, keys: Tensor) -> bool:
    """Whether kernels take the steps of a layer and its questions.  U (gates·D, D), keys (B, S, A)."""
    return steppable(U) and steppable(keys) and askable(keys.shape[1])


class FusedLstm(LstmLayer):
    """The LSTM's layer by kernels."""

    def cut(self) -> list[Views]:
        """Nothing: a kernel finds its place by t."""
        self.kernels = LstmSteps(self.gates, self.s, self.m)
        return []

    def gate(self, t: int) -> None:
        """By one kernel."""
        self.kernels.go(t)

    def ready(self) -> None:
        """No slopes: they are worked out where they are needed."""
        self.kernels = LstmSteps(self.gates, self.s, self.m)
        self.kernels.turn(self.d, self.ds, self.dm)

    def ungate(self, t: int) -> None:
        """By one kernel."""
        self.kernels.back(t)


class FusedGru(GruLayer):
    """The GRU's layer by kernels."""

    def cut(self) -> list[Views]:
        """Nothing: a kernel finds its place by t."""
        self.kernels = GruSteps(self.gates, self.s)
        return []

    def gate(self, t: int) -> None:
        """By one kernel."""
        self.kernels.go(t)

    def ready(self) -> None:
        """No slopes: they are worked out where they are needed."""
        self.kernels = GruSteps(self.gates, self.s)
        self.kernels.turn(self.d, self.ds)

    def ungate(self, t: int) -> None:
        """By one kernel."""
        self.kernels.back(t)


# The plain RNN is one operation a step each way as it is.
FUSED: dict[str, type[Layer]] = {"lstm": FusedLstm, "gru": FusedGru}


class FusedAdditive(Additive):
    """e_tj = v · tanh(q_t + k_j) with q = W s: one product and one kernel for a question, and for its way back."""

    def ready(self) -> None:
        """Nothing but the kernels themselves."""
        self.kernels = Questions((self.keys, self.values, self.keep), self.kept, self.v)

    def go(self, t: int, s: Tensor) -> Tensor:
        """Ask.  s (B, D) -> c (B, E)."""
        q, _, c = self.steps[t]
        torch.mm(s, self.W.t(), out=q)
        self.kernels.go(t, q)
        return c

    def turn(self, dc: Tensor, d_weights: Tensor | None = None, dq: Tensor | None = None) -> None:
        """Begin the way back."""
        self.dc = dc
        self.dq, self.de = self.kernels.turn(dc, None if d_weights is None else d_weights.contiguous(), dq)

    def back(self, t: int, ds: Tensor) -> None:
        """Take question t back; `dc[t]` must be whole. What s gets is added to ds (B, D)."""
        self.kernels.back(t, ds)
        self.give(self.dq[t], ds)

    def d_keys(self) -> Tensor:
        """The gradient of the keys, (B, S, A), and with it that of v."""
        d_keys, self.dv = self.kernels.memory_back()
        return d_keys


class FusedDot(Dot):
    """e_tj = q_t · k_j with q = scale · s: one kernel for a question, and for its way back."""

    def ready(self) -> None:
        """Nothing but the kernels themselves."""
        self.kernels = Questions((self.keys, self.values, self.keep), self.kept, scale=self.scale)

    def go(self, t: int, s: Tensor) -> Tensor:
        """Ask.  s (B, D) -> c (B, E)."""
        self.kernels.go(t, s)
        return self.c[t]

    def turn(self, dc: Tensor, d_weights: Tensor | None = None, dq: Tensor | None = None) -> None:
        """Begin the way back."""
        self.dc = dc
        self.dq, self.de = self.kernels.turn(dc, None if d_weights is None else d_weights.contiguous(), dq)

    def back(self, t: int, ds: Tensor) -> None:
        """Take question t back; `dc[t]` must be whole. What s gets is added to ds (B, D)."""
        self.kernels.back(t, ds)
