"""The recurrent cells: plain RNN, LSTM and GRU, as pure functions of what has been projected already.

x is W x_t + b, the input's part, and u is U s_{t-1} + b', the state's part, each with the gates side by side in
PyTorch's order, so that weights can be exchanged with `nn.RNN`, `nn.LSTM` and `nn.GRU`. Keeping the products outside
lets a decoder work out the inputs of all steps at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heedful.kernels import gru_cell, lstm_cell, steppable

__all__ = ["CELLS", "Cell", "CellState", "Kind", "gru", "initialise", "lstm", "rnn"]

CellState = tuple[Tensor, ...]  # (s,), or (s, m) for the LSTM with its cell state m; each (B, D)


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


class Kind(NamedTuple):
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
        alike = all(tensor.dtype == tensors[0].dtype for tensor in tensors)
        fused = self.kernel is not None and not torch.is_grad_enabled() and alike and steppable(tensors[0])
        return self.kernel if fused and self.kernel is not None else self.function


CELLS = {
    "rnn": Kind(rnn, 1, 1, nn.RNN),
    "lstm": Kind(lstm, 4, 2, nn.LSTM, lstm_cell),
    "gru": Kind(gru, 3, 1, nn.GRU, gru_cell),
}


class Cell(nn.Module):
    """One layer of a decoder: the weights U of the state, and W of each part of the input.

    The input is a concatenation, [c_t; y_{t-1}] say; its parts keep weights of their own, because
    W[c; y] = W_c c + W_y y and the part that is known beforehand need not wait for the loop.
    """

    def __init__(self, kind: str, parts: tuple[int, ...], D: int) -> None:
        super().__init__()
        self.kind = CELLS[kind]
        self.W = nn.ModuleList(nn.Linear(part, self.kind.gates * D, bias=i == 0) for i, part in enumerate(parts))
        self.U = nn.Linear(D, self.kind.gates * D)
        initialise(self.U.weight, self.U.bias, D, forget=kind == "lstm")

    def project(self, part: int, x: Tensor) -> Tensor:
        """Return one part of the input's share.  x (…, part) -> (…, gates·D)."""
        return self.W[part](x)  # type: ignore[no-any-return]

    def weights(self, part: int) -> Tensor:
        """Return W of one part of the input: (gates·D, part)."""
        return self.W[part].weight  # type: ignore[return-value]

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights of the first part of the input and of the state, and their biases, by name."""
        W, U = self.W[0], self.U
        return {"W": W.weight, "b_W": W.bias, "U": U.weight, "b_U": U.bias}  # type: ignore[dict-item]

    def forward(self, x: Tensor, state: CellState) -> CellState:
        """Go one step.  x (B, gates·D), projected; state before -> state after."""
        u = F.linear(state[0], self.U.weight, self.U.bias)
        return self.kind.best(x, u, *state)(x, u, state)


@torch.no_grad()
def initialise(U: Tensor, b: Tensor, D: int, forget: bool) -> None:
    """Make each gate's recurrent weights orthogonal, so that gradients keep their norm; open an LSTM's forget gate."""
    for gate in torch.split(U, D):
        nn.init.orthogonal_(gate)
    b.zero_()
    if forget:
        b[D : 2 * D] = 1.0
