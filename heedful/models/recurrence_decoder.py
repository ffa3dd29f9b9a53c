"""A recurrent decoder with attention as one operation, for teacher forcing: T steps there, T steps back.

It computes what the loops in `bahdanau`, `luong` and `fixed` say, which tests compare it with, several times faster in
training. See `recurrence`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from heedful.kernels import aside
from heedful.models.cells import CellState
from heedful.models.recurrence import own_precision
from heedful.models.recurrence_course import Course, Plan, Tensors
from heedful.models.recurrence_joined import JoinedCourse, joinable

__all__ = ["Plan", "Tensors", "Written", "write"]


class Written(NamedTuple):
    """What T steps give: s (T, B, D), c (T, B, E), α (T, B, S) and a (T, B, D) where there are any, the last states."""

    s: Tensor
    c: Tensor | None
    weights: Tensor | None
    a: Tensor | None
    last: tuple[CellState, ...]

    @property
    def known(self) -> Tensor:
        """[s_t; c_t], or s_t where nobody asks, batch first: (B, T, …)."""
        return (self.s if self.c is None else torch.cat([self.s, self.c], dim=-1)).transpose(0, 1)

    @property
    def seen(self) -> Tensor | None:
        """The weights as `step` returns them, of one layer with one head: (B, 1, 1, T, S)."""
        return None if self.weights is None else self.weights.transpose(0, 1)[:, None, None]


@aside
def write(plan: Plan, tensors: Tensors) -> Written:
    """Go through T steps. What `tensors` may hold, with l for the layers from 0 on, and PyTorch's order of gates:

    x (T, B, K): what the lowest layer reads that is known of all steps; W0, b_W0: the weights of it;
    U{l}, b_U{l}; from the second layer on also W{l}, b_W{l}, and drop{l} (T, B, D), which multiplies the state below;
    s{l} and, for the LSTM, m{l} (B, D): the first states;
    keys (B, S, A), values (B, S, E), keep (B, S); for the additive score W_q (A, D) and v (A,);
    W_a (D, D+E), b_a (D,), a (B, D): a_t = tanh(W_a[s_t; c_t] + b_a), and what stands for a_0;
    W_fed: the weights of what is fed into the lowest layer: a_{t-1} if there is one, else c_t.
    """
    names, kind = tuple(tensors), tensors["U0"].dtype
    with own_precision(tensors["x"].device), torch.cuda.device_of(tensors["x"]):  # type: ignore[no-untyped-call]
        values = [tensor.to(kind) if tensor.is_floating_point() else tensor for tensor in tensors.values()]
        found = list(_Write.apply(plan, names, *values))  # type: ignore[no-untyped-call]
    s = found.pop(0)
    c, weights = (found.pop(0), found.pop(0)) if plan.ask else (None, None)
    a = found.pop(0) if "a" in tensors else None
    n = len(plan.states)
    return Written(s, c, weights, a, tuple(tuple(found[n * layer : n * layer + n]) for layer in range(plan.layers)))


def _kind(plan: Plan, given: Tensors) -> type[Course]:
    """Return the way that is taken: in one launch fewer or two where every launch has its price."""
    return JoinedCourse if joinable(plan, given) else Course


class _Context(FunctionCtx):
    """What the way there leaves for the way back."""

    saved_tensors: tuple[Tensor, ...]
    plan: Plan
    names: tuple[str, ...]


class _Write(torch.autograd.Function):
    """The operation of `write`."""

    @staticmethod
    def forward(ctx: _Context, plan: Plan, names: tuple[str, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(names, tensors, strict=True))
        course = _kind(plan, given)(plan, given)
        course.go()
        ctx.plan, ctx.names = plan, names
        ctx.save_for_backward(*tensors, *course.kept)
        ctx.set_materialize_grads(False)
        return course.outputs()

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        n = len(ctx.names)
        given = dict(zip(ctx.names, ctx.saved_tensors[:n], strict=True))
        with own_precision(given["x"].device):
            found = _kind(ctx.plan, given)(ctx.plan, given, list(ctx.saved_tensors[n:])).back(list(gradients))
        return None, None, *(found.get(name) for name in ctx.names)
