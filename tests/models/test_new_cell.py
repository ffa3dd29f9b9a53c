"""A cell that is added to CELLS trains and decodes by its own function, with no further edit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from conftest import copies
from small_networks import filled, padded
from small_runs import small
from torch import Tensor

import heedful
from heedful.config import Config, FixedConfig, RecurrentConfig, RnnConfig
from heedful.errors import ConfigError
from heedful.models import NeedWeights, Network
from heedful.models.rnn import CELLS, CellKind, CellState, gru, lstm

V, LENGTHS, T = 9, [4, 6, 1, 3], 5
FAMILIES: list[RecurrentConfig] = [
    RnnConfig(width=4, embedding=3, layers=2, order="bahdanau"),
    RnnConfig(width=4, embedding=3, order="luong"),
    FixedConfig(width=4, embedding=3, bidirectional=False),
]


def mgu(x: Tensor, u: Tensor, state: CellState) -> CellState:
    """s_t = (1 - f) s_{t-1} + f n, with the gate f = σ(x + u) and the candidate n = tanh(x + f u)."""
    (x_f, x_n), (u_f, u_n) = x.chunk(2, dim=-1), u.chunk(2, dim=-1)
    f = torch.sigmoid(x_f + u_f)
    return (torch.lerp(state[0], torch.tanh(x_n + f * u_n), f),)


ADDED = {"minimal": CellKind(mgu, 2), "plain_gru": CellKind(gru, 3), "plain_lstm": CellKind(lstm, 4, 2)}


@pytest.fixture(autouse=True)
def added() -> Iterator[None]:
    CELLS.update(ADDED)
    yield
    for name in ADDED:
        del CELLS[name]


def with_cell(config: RecurrentConfig, cell: str) -> RecurrentConfig:
    return type(config)(**{**vars(config), "cell": cell})


def logits_of(model: Network, size: int) -> Tensor:
    """Return logits (B, T, V) by steps of `size` tokens."""
    x, keep, y = padded(LENGTHS, V, V, T)
    memory = model.encode(x, keep)
    state, logits = model.start(memory, T), []
    for t in range(0, T, size):
        step = model.step(y[:, t : t + size], state, memory, NeedWeights())
        state = step.state
        logits.append(model.logits(step.hidden))
    return torch.cat(logits, 1)


@pytest.mark.parametrize("config", FAMILIES, ids=str)
@pytest.mark.parametrize("fast", ["gru", "lstm"])
def test_the_plain_path_computes_what_the_fast_one_computes(config: RecurrentConfig, fast: str) -> None:
    """The same function, once with its fast versions and once without: the same logits, states and gradients."""
    first, second = (filled(with_cell(config, cell), V, V) for cell in (fast, f"plain_{fast}"))
    second.load_state_dict(first.state_dict())
    for size in (T, 1):
        ours, plain = (logits_of(model, size) for model in (first, second))
        torch.testing.assert_close(ours, plain)
        gradients = [
            torch.autograd.grad(logits.square().sum(), list(model.parameters()))
            for model, logits in ((first, ours), (second, plain))
        ]
        torch.testing.assert_close(*gradients)
    with torch.no_grad():
        torch.testing.assert_close(logits_of(first, 1), logits_of(second, 1))


@pytest.mark.parametrize("config", FAMILIES, ids=str)
def test_training_computes_what_decoding_computes(config: RecurrentConfig) -> None:
    model = filled(with_cell(config, "minimal"), V, V)
    with torch.no_grad():
        decoded = logits_of(model, 1)
    torch.testing.assert_close(logits_of(model, T), decoded)


@torch.no_grad()
def test_the_encoder_is_the_function_step_by_step() -> None:
    model = filled(RnnConfig(width=4, embedding=3, bidirectional=False, cell="minimal"), V, V)
    x, keep, _ = padded(LENGTHS, V, V, T)
    memory, rnn = model.encode(x, keep), model.encoder.rnn
    for b, length in enumerate(LENGTHS):
        s = torch.zeros(1, 4, dtype=torch.float64)
        for j, e in enumerate(model.encoder.embedding(x[b, :length])):
            (s,) = mgu(rnn.weight_ih_l0 @ e + rnn.bias_ih_l0, s @ rnn.weight_hh_l0.T + rnn.bias_hh_l0, (s,))
            torch.testing.assert_close(memory.h[b, j], s[0])
        torch.testing.assert_close(memory.last[0][b], s[0])
        assert not memory.h[b, length:].any()


def test_it_is_a_setting_as_long_as_it_is_registered() -> None:
    settings = {"model": {"family": "rnn", "cell": "minimal"}}
    assert Config.build(settings).model.cell == "minimal"
    with pytest.raises(ConfigError, match="'minimall'.*minimal"):
        Config.build({"model": {"family": "rnn", "cell": "minimall"}})
    kind = CELLS.pop("minimal")
    with pytest.raises(ConfigError, match=r"'minimal'.*heedful\.models\.rnn\.CELLS"):
        Config.build(settings)
    CELLS["minimal"] = kind


def test_it_is_trained_saved_and_loaded(tmp_path: Path) -> None:
    settings = small(model={"cell": "minimal"}, training={"steps": 20})
    heedful.train(copies(), tmp_path / "m", settings=settings, verbose=False)
    translator = heedful.load(tmp_path / "m", "cpu")
    assert translator.config.model.cell == "minimal"
    assert translator.translate(copies()[0][0]).text
