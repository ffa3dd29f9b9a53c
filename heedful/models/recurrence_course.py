"""A recurrent decoder with attention on its way through T steps there, and T steps back; see `recurrence`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.models.recurrence import Layer
from heedful.models.recurrence_attention import Additive, Asking, Dot
from heedful.models.recurrence_fused import additive_kind, dot_kind, layer_kind

__all__ = ["Course", "Plan", "Tensors"]

Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class Plan:
    """What a decoder does: its cell and layers, who asks ("before": s_{t-1}, "after": s_t, or nobody), and √D or 1."""

    cell: str
    layers: int
    ask: str = ""
    scale: float = 1.0

    @property
    def states(self) -> tuple[str, ...]:
        """The names of a layer's states."""
        return ("s", "m") if self.cell == "lstm" else ("s",)


class Course:
    """A decoder on its way: made of what was given, and of what was kept when it is on its way back."""

    def __init__(self, plan: Plan, given: Tensors, kept: list[Tensor] | None = None) -> None:
        self.plan, self.given = plan, given
        self.T = given["x"].shape[0]
        room = list(kept) if kept is not None else None
        self.layers = [self._layer(number, room) for number in range(plan.layers)]
        self.top = self.layers[-1]
        self.asking = self._asking(room) if plan.ask else None
        self.a = self._mixed(room) if "a" in given else None
        arrange = self.layers[0].arrange
        self.W = [arrange(given[f"W{number}"][None]) for number in range(plan.layers)]
        self.W_fed = arrange(given["W_fed"][None]) if "W_fed" in given else None
        if self.a is not None:
            self.W_s, self.W_c = torch.split(given["W_a"], [self.top.D, given["values"].shape[2]], dim=1)

    def _layer(self, number: int, room: list[Tensor] | None) -> Layer:
        given, plan = self.given, self.plan
        U = given[f"U{number}"][None]
        kind = layer_kind(plan.cell, U)
        if room is not None:
            return kind(U, *[room.pop(0) for _ in range(1 + len(plan.states))])
        bias = (given[f"b_W{number}"][None], given[f"b_U{number}"][None])
        first = tuple(given[f"{side}{number}"][None] for side in plan.states)
        return kind.begin(self.T, U, bias, first, self._gates(number))

    def _asking(self, room: list[Tensor] | None) -> Additive | Dot:
        keys, values, keep = (self.given[name] for name in ("keys", "values", "keep"))
        kept = Asking.room(self.T, keys, values, self._q()) if room is None else tuple(room.pop(0) for _ in range(3))
        if "v" in self.given:
            return self._additive(keys)(keys, values, keep, kept, (self.given["W_q"], self.given["v"]))
        return dot_kind(keys)(keys, values, keep, kept, self.plan.scale)

    def _mixed(self, room: list[Tensor] | None) -> Tensor:
        if room is not None:
            return room.pop(0)
        a = self._a()
        a[0] = self.given["a"]
        return a

    def _gates(self, number: int) -> Tensor | None:
        """Room for a layer's gates, or on the way back for their gradients, if it has to be there."""
        return None

    def _q(self) -> Tensor | None:
        """The same for questions: (T, B, A)."""
        return None

    def _a(self) -> Tensor:
        """The same for what is mixed: (T+1, B, D)."""
        first = self.given["a"]
        return first.new_empty(self.T + 1, *first.shape)

    def _additive(self, keys: Tensor) -> type[Additive]:
        return additive_kind(keys)

    @property
    def kept(self) -> list[Tensor]:
        """What the way back needs besides what was given."""
        of_layers = [tensor for layer in self.layers for tensor in layer.kept[1:]]
        return [*of_layers, *(self.asking.kept if self.asking else ()), *([] if self.a is None else [self.a])]

    def go(self) -> None:
        """All steps."""
        lowest = self.layers[0]
        lowest.project(self.given["x"][None], self.W[0])
        for upper in self.layers[1:]:
            upper.gates.copy_(upper.bias)
        for t in range(self.T):
            lowest.open(t)
            self._step(t)

    def _step(self, t: int) -> None:
        fed = None if self.a is None else self.a[t]
        if self.asking and self.plan.ask == "before":
            fed = self.asking.go(t, self.top.s[0, t])
        if fed is not None and self.W_fed is not None:
            self.layers[0].add(t, fed[None], self.W_fed.transpose(1, 2))
        for number, layer in enumerate(self.layers):
            if number:
                layer.add(t, self._below(number, t), self.W[number].transpose(1, 2))
            self._take(layer, t)
        if self.asking and self.plan.ask == "after":
            c = self.asking.go(t, self.top.s[0, t + 1])
            if self.a is not None:
                a = self.a[t + 1]
                self._mix(a, self.top.s[0, t + 1])
                a.addmm_(c, self.W_c.t()).tanh_()

    def _take(self, layer: Layer, t: int) -> None:
        layer.go(t)

    def _mix(self, a: Tensor, s: Tensor) -> None:
        torch.addmm(self.given["b_a"], s, self.W_s.t(), out=a)

    def _below(self, number: int, t: int | slice) -> Tensor:
        """What a layer reads from the one below: at one step (1, B, D), or at all (1, T, B, D)."""
        s, drop = self.layers[number - 1].s[:, 1:][:, t], self.given.get(f"drop{number}")
        return s if drop is None else s * drop[t]

    def outputs(self) -> tuple[Tensor, ...]:
        """s, c, α and a where there are any, then the last states, layer by layer."""
        found = [self.top.s[0, 1:]]
        if self.asking:
            found += [self.asking.c, self.asking.weights]
        if self.a is not None:
            found.append(self.a[1:])
        lasts = [side[0, -1] for layer in self.layers for side in layer.kept[2:]]
        return *found, *(last.clone() for last in lasts)

    def back(self, gradients: list[Tensor | None]) -> Tensors:
        """All steps back: from the gradients of the outputs to those of what was given."""
        sides = [[torch.zeros_like(side) for side in layer.kept[2:]] for layer in self.layers]
        _add(sides[-1][0][0, 1:], gradients.pop(0))
        if self.asking:
            dc = torch.zeros_like(self.asking.c)
            _add(dc, gradients.pop(0))
            self.asking.turn(dc, gradients.pop(0), self._q())
        if self.a is not None:
            self.da = self._a().zero_()
            _add(self.da[1:], gradients.pop(0))
        for number, (layer, own) in enumerate(zip(self.layers, sides, strict=True)):
            for side in own:
                _add(side[0, -1], gradients.pop(0))
            ds, dm = own if len(own) == 2 else (own[0], None)
            layer.turn(ds, dm, self._gates(number))
        self._turn()
        for t in reversed(range(self.T)):
            self._step_back(t)
        return self._gradients()

    def _step_back(self, t: int) -> None:
        ds = self.top.ds[0, t + 1]
        if self.asking and self.plan.ask == "after":
            if self.a is not None:
                a, da = self.a[t + 1], self.da[t + 1]
                da.addcmul_(da * a, a, value=-1)  # from here on, that of what is bent
                self._unmix(da, ds)
                self.asking.dc[t].addmm_(da, self.W_c)
            self.asking.back(t, ds)
        for number, layer in reversed(list(enumerate(self.layers))):
            self._take_back(layer, t)
            if number:
                self._spread_below(number, t)
        if self.W_fed is not None:
            into = self.da[t] if self.a is not None else self.asking.dc[t]  # type: ignore[union-attr]
            self.layers[0].spread(t, into[None], self.W_fed)
        if self.asking and self.plan.ask == "before":
            self.asking.back(t, self.top.ds[0, t])

    def _turn(self) -> None:
        """Make ready what goes back besides layers and questions."""

    def _take_back(self, layer: Layer, t: int) -> None:
        layer.back(t)

    def _unmix(self, da: Tensor, ds: Tensor) -> None:
        ds.addmm_(da, self.W_s)

    def _spread_below(self, number: int, t: int) -> None:
        """Give the layer below its share."""
        layer, into, drop = self.layers[number], self.layers[number - 1].ds[:, t + 1], self.given.get(f"drop{number}")
        if drop is None:
            layer.spread(t, into, self.W[number])
        else:
            into.addcmul_(layer.d_input[:, t] @ self.W[number], drop[t])

    def _gradients(self) -> Tensors:
        """What is worked out for all steps at once."""
        lowest, found = self.layers[0], Tensors()
        found["x"] = lowest.dx(self.W[0])[0]
        for number, layer in enumerate(self.layers):
            x = self._below(number, slice(None)) if number else self.given["x"][None]
            found[f"W{number}"], found[f"U{number}"] = layer.dW(x)[0], layer.dU()[0]
            found[f"b_W{number}"], found[f"b_U{number}"] = (b[0] for b in layer.db())
            for name, side in zip(self.plan.states, (layer.ds, layer.dm), strict=False):
                found[f"{name}{number}"] = side[0, 0]  # type: ignore[index]
        if self.asking:
            found |= {"keys": self.asking.d_keys(), "values": self.asking.d_values()}
        if isinstance(self.asking, Additive):
            asked = self.top.s[0, :-1] if self.plan.ask == "before" else self.top.s[0, 1:]
            found |= {"W_q": self.asking.dW(asked), "v": self.asking.dv}
        if self.a is not None and self.asking:
            da = self.da[1:].flatten(0, 1)
            known = torch.cat([self.top.s[0, 1:], self.asking.c], dim=-1).flatten(0, 1)
            found |= {"W_a": da.t() @ known, "b_a": da.sum(0), "a": self.da[0]}
        if self.W_fed is not None:
            fed = self.a[:-1] if self.a is not None else self.asking.c  # type: ignore[union-attr]
            found["W_fed"] = lowest.dW(fed[None])[0]
        return found


def _add(into: Tensor, gradient: Tensor | None) -> None:
    if gradient is not None:
        into.add_(gradient)
