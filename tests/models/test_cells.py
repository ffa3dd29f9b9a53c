"""The recurrent cells: by hand, against PyTorch's cells, by gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from heedful.models.rnn import CELLS, Cell, gru, lstm, rnn

LN_3 = 1.098612  # σ(ln 3) = ¾, σ(-ln 3) = ¼
TANH_1 = 0.761594
MODULES = {"rnn": nn.RNNCell, "lstm": nn.LSTMCell, "gru": nn.GRUCell}
SHIPPED = ("gru", "lstm", "rnn")


def row(*numbers: float) -> Tensor:
    return torch.tensor([numbers])


def same(got: Tensor, *wanted: float) -> None:
    torch.testing.assert_close(got, row(*wanted), atol=1e-5, rtol=0)


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def states(kind: str, B: int, D: int) -> tuple[Tensor, ...]:
    return tuple(rand(B, D, seed=10 + i) for i in range(CELLS[kind].states))


def test_rnn_by_hand():
    (s,) = rnn(row(0.3, -2.0), row(0.7, 2.0), (row(9.0, 9.0),))
    same(s, TANH_1, 0.0)


def test_lstm_by_hand():
    # i = σ(0) = ½, f = σ(ln 3) = ¾, g = tanh 1, o = σ(-ln 3) = ¼, each a sum of both parts
    x, u = row(1.0, LN_3, 0.5, 0.0), row(-1.0, 0.0, 0.5, -LN_3)
    s, m = lstm(x, u, (row(9.0), row(2.0)))
    same(m, 1.880797)  # ¾·2 + ½·0.761594
    same(s, 0.238641)  # ¼ tanh 1.880797 = ¼·0.954563


def test_gru_by_hand():
    # r = σ(ln 3) = ¾, z = σ(-ln 3) = ¼, n = tanh(-½ + ¾·2) = tanh 1
    x, u = row(LN_3, -1.0, -0.5), row(0.0, 1.0 - LN_3, 2.0)
    (s,) = gru(x, u, (row(2.0),))
    same(s, 1.071196)  # ¾·0.761594 + ¼·2


def test_gates_of_wider_states_stay_apart():
    # two channels, each with gates of its own: the first as above, the second with z = σ(ln 3) = ¾ and n = tanh 0
    x, u = row(LN_3, 0.0, -LN_3, LN_3, -0.5, 0.0), row(0.0, 0.0, 0.0, 0.0, 2.0, 0.0)
    (s,) = gru(x, u, (row(2.0, 4.0),))
    same(s, 1.071196, 3.0)


@pytest.mark.parametrize("kind", SHIPPED)
def test_step_equals_pytorchs(kind):
    B, D = 3, 4
    theirs = MODULES[kind](5, D).double()
    state, x = states(kind, B, D), rand(B, 5, seed=1)
    after = CELLS[kind].function(
        x @ theirs.weight_ih.T + theirs.bias_ih, state[0] @ theirs.weight_hh.T + theirs.bias_hh, state
    )
    wanted = theirs(x, state if kind == "lstm" else state[0])
    torch.testing.assert_close(after, wanted if kind == "lstm" else (wanted,))


@pytest.mark.parametrize("kind", SHIPPED)
def test_parts_of_the_input_equal_their_concatenation(kind):
    B, D = 3, 4
    torch.manual_seed(0)
    cell, theirs = Cell(kind, (5, 2), D).double(), MODULES[kind](7, D).double()
    nn.init.normal_(cell.U.bias)  # zeros would hide a bias in the wrong place
    with torch.no_grad():
        theirs.weight_ih.copy_(torch.cat([cell.W[0].weight, cell.W[1].weight], dim=1))
        theirs.bias_ih.copy_(cell.W[0].bias)
        theirs.weight_hh.copy_(cell.U.weight)
        theirs.bias_hh.copy_(cell.U.bias)
    state, a, b = states(kind, B, D), rand(B, 5, seed=1), rand(B, 2, seed=2)
    after = cell(cell.project(0, a) + cell.project(1, b), state)
    wanted = theirs(torch.cat([a, b], dim=1), state if kind == "lstm" else state[0])
    torch.testing.assert_close(after, wanted if kind == "lstm" else (wanted,))


@pytest.mark.parametrize("kind", SHIPPED)
def test_gradient(kind):
    B, D = 2, 3
    x, u = (rand(B, CELLS[kind].gates * D, seed=seed).requires_grad_() for seed in (1, 2))
    state = [side.requires_grad_() for side in states(kind, B, D)]
    # the LSTM reads s_{t-1} only through u, and the RNN nothing else
    used = {"rnn": [], "lstm": state[1:], "gru": state}[kind]
    fixed = {"rnn": state, "lstm": state[:1], "gru": []}[kind]
    assert torch.autograd.gradcheck(lambda x, u, *s: CELLS[kind].function(x, u, (*fixed, *s)), (x, u, *used))


@pytest.mark.parametrize("kind", SHIPPED)
def test_step_leaves_the_state_before_alone(kind):
    state = states(kind, 2, 3)
    before = [side.clone() for side in state]
    x, u = rand(2, CELLS[kind].gates * 3, seed=1), rand(2, CELLS[kind].gates * 3, seed=2)
    CELLS[kind].function(x, u, state)
    assert all(map(torch.equal, state, before))


@pytest.mark.parametrize("kind", SHIPPED)
def test_each_gate_begins_orthogonal(kind):
    torch.manual_seed(0)
    cell = Cell(kind, (5,), 4)
    for gate in cell.U.weight.detach().split(4):
        torch.testing.assert_close(gate @ gate.T, torch.eye(4), atol=1e-5, rtol=0)


def test_only_the_forget_gate_begins_open():
    ones, zeros = [1.0] * 2, [0.0] * 2
    assert Cell("lstm", (5,), 2).U.bias.tolist() == [*zeros, *ones, *zeros, *zeros]
    assert Cell("gru", (5,), 2).U.bias.tolist() == zeros * 3
