"""The recurrent cells: plain RNN, LSTM and GRU, as pure functions of what has been projected already.

x is W x_t + b, the input's part, and u is U s_{t-1} + b', the state's part, each with the gates side by side in
PyTorch's order, so that weights can be exchanged with `nn.RNN`, `nn.LSTM` and `nn.GRU`. Keeping the products outside
lets a decoder compute the inputs of all steps at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.fused.triton import gru_cell, lstm_cell, steppable

__all__ = ["CELLS", "CellKind", "CellState", "by_kernels", "gru", "initialise", "lstm", "rnn"]

CellState = tuple[Tensor, ...]  # (s,), or (s, m) for the LSTM with its cell state m; each (B, D)


def by_kernels(x: Tensor) -> bool:
    """Whether kernels take a step of decoding on this tensor."""
    return x.is_cuda and steppable(x)


def rnn(x: Tensor, u: Tensor, state: CellState) -> CellState:
    """s_t = tanh(x + u).  x (B, D), u (B, D) -> s (B, D)."""
    return (torch.tanh(x + u),)


def lstm(x: Tensor, u: Tensor, state: CellState) -> CellState:
    """m_t = f m_{t-1} + i g, s_t = o tanh(m_t).  x (B, 4D), u (B, 4D), m (B, D) -> s, m (B, D).

    Input, forget and output gate i, f, o = σ(x + u), candidate g = tanh(x + u); in the order i, f, g, o.
    """
    i, f, g, o = (x + u).chunk(4, dim=-1)
    m = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(m), m


def gru(x: Tensor, u: Tensor, state: CellState) -> CellState:
    """s_t = (1 - z) n + z s_{t-1}.  x (B, 3D), u (B, 3D), s (B, D) -> s (B, D).

    Reset and update gate r, z = σ(x + u), candidate n = tanh(x + r u); in the order r, z, n.
    """
    D = state[0].shape[-1]
    # Split, not sliced: the gradient of a slice is written into zeros of the whole.
    x_gates, x_n = torch.split(x, [2 * D, D], dim=-1)
    u_gates, u_n = torch.split(u, [2 * D, D], dim=-1)
    r, z = torch.sigmoid(x_gates + u_gates).chunk(2, dim=-1)
    n = torch.tanh(torch.addcmul(x_n, r, u_n))
    return (torch.lerp(n, state[0], z),)


Function = Callable[[Tensor, Tensor, CellState], CellState]


class CellKind(NamedTuple):
    """A cell's function, how many gates it has side by side, how many tensors its state has, PyTorch's module.

    `kernel` is the same function without a gradient, on a GPU.
    """

    function: Function
    gates: int
    states: int
    module: type[nn.RNN] | type[nn.LSTM] | type[nn.GRU]
    kernel: Function | None = None

    def best(self, *tensors: Tensor) -> Function:
        """Return the function for these tensors: the kernel where kernels are used and nobody learns."""
        if self.kernel is None or torch.is_grad_enabled() or not by_kernels(tensors[0]):
            return self.function
        return self.kernel if all(tensor.dtype == tensors[0].dtype for tensor in tensors) else self.function


CELLS = {
    "rnn": CellKind(rnn, 1, 1, nn.RNN),
    "lstm": CellKind(lstm, 4, 2, nn.LSTM, lstm_cell),
    "gru": CellKind(gru, 3, 1, nn.GRU, gru_cell),
}


@torch.no_grad()
def initialise(U: Tensor, b: Tensor, D: int, forget: bool) -> None:
    """Make each gate's recurrent weights orthogonal, so that gradients keep their norm; open an LSTM's forget gate."""
    for gate in torch.split(U, D):
        nn.init.orthogonal_(gate)
    b.zero_()
    if forget:
        b[D : 2 * D] = 1.0
