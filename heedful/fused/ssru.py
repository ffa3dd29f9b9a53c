"""The states of an SSRU (Kim et al. 2019) over all tokens, as one autograd function.

The cell is `heedful.models.rnn.ssru`. Its recurrence multiplies by no matrix, so a step is one operation on (R, D), and
everything else is computed for all steps together. An associative scan needs fewer operations, log2(n), but each on all
states, and was slower on a CPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from heedful.fused.triton.launch import no_compile


@no_compile
def ssru_states(x: Tensor, f: Tensor, c: Tensor) -> Tensor:
    """Return c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ x_t.  x, f (R, n, D), c (R, D), c_0 -> (R, n, D).

    `f` are the gates, after the sigmoid.

    >>> x, f = torch.tensor([[[8.0], [0.0]]]), torch.tensor([[[0.25], [0.5]]])
    >>> ssru_states(x, f, torch.tensor([[4.0]])).flatten().tolist()
    [7.0, 3.5]
    """
    if x.shape[1] == 1:
        return torch.lerp(x, c[:, None], f)
    if torch.is_grad_enabled() and (x.requires_grad or f.requires_grad or c.requires_grad):
        states: Tensor = _SsruStates.apply(x, f, c)  # type: ignore[no-untyped-call]
        return states
    return _states(x, f, c)


def _states(x: Tensor, f: Tensor, c: Tensor) -> Tensor:
    states = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    for x_t, f_t, c_t in zip(x.unbind(1), f.unbind(1), states.unbind(1), strict=True):
        c = torch.lerp(x_t, c, f_t, out=c_t)
    return states


class _SsruStates(torch.autograd.Function):
    """`ssru_states` and its gradients; with g_t the gradient of c_t, g_t = dc_t + f_{t+1} ⊙ g_{t+1}."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, f: Tensor, c: Tensor) -> Tensor:  # noqa: ANN401
        states = _states(x, f, c)
        ctx.save_for_backward(x, f, c, states)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
        x, f, c, states = ctx.saved_tensors
        g = torch.empty_like(states)
        into, gates = g.unbind(1), f.unbind(1)
        last = into[-1].copy_(gradient[:, -1])
        for t in range(len(into) - 2, -1, -1):
            last = torch.addcmul(gradient[:, t], gates[t + 1], last, out=into[t])
        dx = g * (1 - f)
        df = torch.cat([c[:, None], states[:, :-1]], dim=1).sub_(x).mul_(g)
        return dx, df, last * gates[0]
