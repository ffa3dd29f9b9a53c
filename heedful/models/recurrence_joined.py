"""One product for all that reads a state: its own layer's sums, a question, what is mixed; see `recurrence`.

U s, W_q s and W_s s read the same s. With the matrices below each other and the sums side by side they are one product,
and so are their ways back: for a GPU, where every launch has its price.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.models.recurrence import Layer, Views
from heedful.models.recurrence_attention import Additive
from heedful.models.recurrence_course import Course, Plan, Tensors
from heedful.models.recurrence_fused import FusedAdditive, fused, layer_kind

__all__ = ["Joined", "JoinedAdditive", "JoinedCourse", "joinable"]


def joinable(plan: Plan, given: Tensors) -> bool:
    """Whether kernels take the steps, and something besides its layer reads the state that asks."""
    return bool(plan.ask) and bool(_others(plan, given)) and fused(_top(plan, given), given["keys"])


def _top(plan: Plan, given: Tensors) -> Tensor:
    """U of the layer that asks: (gates·D, D)."""
    return given[f"U{plan.layers - 1}"]


def _others(plan: Plan, given: Tensors) -> Tensors:
    """The weights of what else reads its states, (…, D): of a question, and of what is mixed."""
    found = {"q": given["W_q"]} if "W_q" in given else {}
    return found | ({"a": given["W_a"][:, : _top(plan, given).shape[1]]} if "a" in given else {})


class Joined:
    """All that reads the states s (T+1, B, D) of one layer: U (gates·D, D), and the others' weights (…, D) by name.

    Row j is what is read from s_j: the sums of the step that begins with it (`gates`) and beside them the `others`. If
    these are late, they belong to the step that ends with s_j, and there is one row more: only the layer reads the
    first state, and only the others the last. Rows hold sums on the way there, and their gradients on the way back.
    """

    def __init__(self, kind: type[Layer], U: Tensor, others: Tensors, late: bool, sizes: tuple[int, int]) -> None:
        (T, B), D = sizes, U.shape[1]
        self.T, self.late, self.own = T, late, U.shape[0]
        self.W = torch.cat([U, *others.values()])
        widths = [kind.blocks * D, *(weights.shape[0] for weights in others.values())]
        rows = U.new_empty(T + late, B, sum(widths))
        self.rows = rows[..., kind.state * D :]  # what products have to do with
        gates, *parts = torch.split(rows, widths, -1)
        self.gates: Tensor = gates[None, :T]  # (1, T, B, blocks·D)
        self.others: Tensors = dict(zip(others, parts, strict=True))  # each (T or T+1, B, …)
        self.products: list[Views] = []

    def _cut(self, s: Tensor) -> list[Views]:
        """What each product sees: s_j or its gradient, what is read from it, and the weights."""
        found: list[Views] = []
        for j, row in enumerate(self.rows.unbind(0)):
            begin, end = self.own if j == self.T else 0, self.own if self.late and j == 0 else None
            found.append((s[j], row[:, begin:end], self.W[begin:end]))
        return found

    def begin(self, s: Tensor) -> None:
        """Begin the way there.  s (T+1, B, D); what is read from it is added to what lies in the rows."""
        self.products = [(s_j, row, W.t()) for s_j, row, W in self._cut(s)]

    def open(self, t: int) -> None:
        """Read what can be read before step t."""
        if t == 0 or not self.late:
            self._read(t)

    def close(self, t: int) -> None:
        """Read what can be read when the layer has taken step t."""
        if self.late:
            self._read(t + 1)

    def _read(self, j: int) -> None:
        s, row, W_t = self.products[j]
        row.addmm_(s, W_t)

    def turn(self, ds: Tensor) -> None:
        """Begin the way back.  ds (T+1, B, D) is added to."""
        self.products = self._cut(ds)

    def unclose(self, t: int) -> None:
        """`close`, back: before the layer takes step t back."""
        if self.late:
            self._give(t + 1)

    def unopen(self, t: int) -> None:
        """`open`, back: when all else of step t has been taken back."""
        if t == 0 or not self.late:
            self._give(t)

    def _give(self, j: int) -> None:
        ds, d, W = self.products[j]
        ds.addmm_(d, W)


class JoinedAdditive(FusedAdditive):
    """Additive questions where `Joined` works out W s, and what s gets."""

    def go(self, t: int, s: Tensor) -> Tensor:
        """Ask what lies in `q[t]`.  -> c (B, E)."""
        self.kernels.go(t, self.q)
        return self.steps[t][2]

    def back(self, t: int, ds: Tensor) -> None:
        """Take question t back as far as `dq[t]`; `dc[t]` must be whole."""
        self.kernels.back(t, self.q)


class JoinedCourse(Course):
    """The same course, with one product for all that reads the top layer's states."""

    def __init__(self, plan: Plan, given: Tensors, kept: list[Tensor] | None = None) -> None:
        U, (T, B, _) = _top(plan, given), given["x"].shape
        self.joined = Joined(layer_kind(plan.cell, U), U, _others(plan, given), plan.ask == "after", (T, B))
        super().__init__(plan, given, kept)

    def _gates(self, number: int) -> Tensor | None:
        return self.joined.gates if number == self.plan.layers - 1 else None

    def _q(self) -> Tensor | None:
        return self.joined.others["q"][self.joined.late :] if "q" in self.joined.others else None

    def _a(self) -> Tensor:
        return self.joined.others["a"]

    def _additive(self, keys: Tensor) -> type[Additive]:
        return JoinedAdditive

    def go(self) -> None:
        """All steps; what products add to must be there before the first, because some are a step ahead."""
        if "q" in self.joined.others:
            self.joined.others["q"].zero_()
        if self.a is not None:
            self.a[1:] = self.given["b_a"]
        self.layers[0].span = self.T
        self.joined.begin(self.top.s[0])
        super().go()

    def _step(self, t: int) -> None:
        self.joined.open(t)
        super()._step(t)

    def _take(self, layer: Layer, t: int) -> None:
        if layer is self.top:
            layer.gate(t)
            self.joined.close(t)
        else:
            layer.go(t)

    def _mix(self, a: Tensor, s: Tensor) -> None:
        """`Joined` has read s."""

    def _turn(self) -> None:
        self.joined.turn(self.top.ds[0])

    def _unmix(self, da: Tensor, ds: Tensor) -> None:
        """`Joined` gives s its share."""

    def _take_back(self, layer: Layer, t: int) -> None:
        if layer is self.top:
            self.joined.unclose(t)
            layer.ungate(t)
        else:
            layer.back(t)

    def _step_back(self, t: int) -> None:
        super()._step_back(t)
        self.joined.unopen(t)
