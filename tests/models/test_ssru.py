"""The SSRU: by hand, against its formula token by token, by gradient; in a Transformer's decoder and in an RNN."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import copies
from small_networks import filled, padded
from small_runs import small
from torch import Tensor
from torch.nn import functional as F

import heedful
from heedful.config import Config, FixedConfig, RnnConfig, TransformerConfig
from heedful.errors import ConfigError, ShapeError
from heedful.fused.ssru import ssru_states
from heedful.models import NeedWeights, build
from heedful.models.device import MemoryNeed
from heedful.models.rnn import ssru
from heedful.models.transformer import positions

V, LENGTHS, T = 11, [4, 6, 1, 3], 5
SHAPE = {"layers": 1, "decoder_layers": 2, "width": 8, "heads": 2, "inner": 12}
LN_3 = 1.098612  # σ(ln 3) = ¾


def rand(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def loop(x: Tensor, f: Tensor, c: Tensor) -> Tensor:
    """The formula, one token after the other."""
    states = []
    for t in range(x.shape[1]):
        c = f[:, t] * c + (1 - f[:, t]) * x[:, t]
        states.append(c)
    return torch.stack(states, dim=1)


def test_a_step_by_hand():
    # f = ¾: ¾·4 + ¼·8 = 5; f = ½: ½·4 - ½·8 = -2, which relu cuts
    s, c = ssru(torch.tensor([[LN_3, 0.0, 8.0, -8.0]]), torch.zeros(1, 2), (torch.zeros(1, 2), torch.full((1, 2), 4.0)))
    torch.testing.assert_close(c, torch.tensor([[5.0, -2.0]]))
    torch.testing.assert_close(s, torch.tensor([[5.0, 0.0]]))


@pytest.mark.parametrize("n", [1, 2, 7])
def test_all_states_are_the_formula_and_so_are_their_gradients(n):
    both = []
    for states in (loop, ssru_states):
        x, f, c = (part.requires_grad_() for part in (rand(3, n, 4, seed=0), rand(3, n, 4, seed=1), rand(3, 4, seed=2)))
        found = states(x, torch.sigmoid(f), c)
        gradients = torch.autograd.grad((found * rand(3, n, 4, seed=3)).sum(), [x, f, c])
        with torch.no_grad():
            torch.testing.assert_close(states(x, torch.sigmoid(f), c), found)
        both.append((found.detach(), *gradients))
    torch.testing.assert_close(both[1], both[0])


def test_gradients_by_differences():
    parts = [part.requires_grad_() for part in (rand(2, 3, 2, seed=0), rand(2, 3, 2, seed=1), rand(2, 2, seed=2))]
    assert torch.autograd.gradcheck(lambda x, f, c: ssru_states(x, torch.sigmoid(f), c), parts)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_only_the_gradients_that_are_wanted(which):
    parts = [rand(2, 3, 2, seed=0), rand(2, 3, 2, seed=1).sigmoid(), rand(2, 2, seed=2)]
    parts[which].requires_grad_()
    ours, plain = (torch.autograd.grad(states(*parts).sum(), parts[which])[0] for states in (ssru_states, loop))
    torch.testing.assert_close(ours, plain)


def test_single_precision_keeps_a_long_sum():
    """Gates near 1 keep what was read 4,000 tokens before: the states of fp32 stay near those of double precision."""
    x, f = rand(1, 4000, 4, seed=0), torch.sigmoid(rand(1, 4000, 4, seed=1) + 7)
    c = torch.full((1, 4), 50.0, dtype=torch.float64)
    wanted = loop(x, f, c)
    torch.testing.assert_close(ssru_states(x.float(), f.float(), c.float()).double(), wanted, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_decoder_is_the_formula_token_by_token(norm):
    """LN(x + relu(c_t)) with norm=post, as in Marian; x + relu(c_t) of LN(x) with norm=pre."""
    model = filled(TransformerConfig(**SHAPE, cell="ssru", norm=norm, positions="marian"), V, V)
    x, keep, y = padded(LENGTHS, V, V, T)
    memory = model.encode(x, keep)
    e = model.embedding.weight[y] * 8**0.5 + positions(T, 8, x.new_zeros((), dtype=torch.float64), "marian")
    s = e
    for number, layer in enumerate(model.decoder):
        W_f, W = layer.inside.W.weight.split(8)
        n = layer.around_inside.LN(s) if norm == "pre" else s
        c, outputs = torch.zeros(len(x), 8, dtype=torch.float64), []
        for t in range(T):
            f = torch.sigmoid(n[:, t] @ W_f.T + layer.inside.b_f)
            c = f * c + (1 - f) * (n[:, t] @ W.T)
            outputs.append(torch.relu(c))
        s = s + torch.stack(outputs, dim=1)
        s = s if norm == "pre" else layer.around_inside.LN(s)
        k, v = memory.keys[2 * number : 2 * number + 2]
        q = layer.across.query(layer.around_across.LN(s) if norm == "pre" else s)
        g = layer.across(q, k, v, keep[:, None])[0]
        s = s + g if norm == "pre" else layer.around_across.LN(s + g)
        g = layer.forward_layer(layer.around_forward.LN(s) if norm == "pre" else s)
        s = s + g if norm == "pre" else layer.around_forward.LN(s + g)
    wanted = model.LN_s(s)
    torch.testing.assert_close(model.step(y, model.start(memory, T), memory).hidden, wanted)
    state, found = model.start(memory, T), []
    for t in range(T):
        hidden, state, _ = model.step(y[:, t : t + 1], state, memory)
        found.append(hidden)
    torch.testing.assert_close(torch.cat(found, dim=1), wanted)


@torch.no_grad()
def test_the_state_has_one_size():
    model = filled(TransformerConfig(**SHAPE, cell="ssru"), V, V)
    x, keep, _ = padded(LENGTHS, V, V, T)
    memory, sizes = model.encode(x, keep), set()
    state = model.start(memory, 300)
    for _ in range(300):
        _, state, _ = model.step(torch.ones(len(x), 1, dtype=torch.long), state, memory)
        sizes.add(state.cells.numel())
    assert sizes == {2 * len(x) * 8}
    with pytest.raises(ShapeError, match="301 tokens"):
        model.step(torch.ones(len(x), 1, dtype=torch.long), state, memory)


@torch.no_grad()
def test_positions_do_not_grow_while_sentences_come_and_go():
    """A service decodes for days: what was before all sentences of the batch is forgotten."""
    model = filled(TransformerConfig(**SHAPE, cell="ssru"), V, V)
    x, keep, y = padded([4], V, V, T)
    memory = model.encode(x, keep)
    state, both = model.start(memory, 8), memory.join(memory)
    for _ in range(50):
        state = state.select(torch.tensor([0])).join(model.start(memory, 8))
        for t in range(3):
            hidden, state, _ = model.step(y[:, [t, t]].T.reshape(2, 1), state, both)
        state = state.select(torch.tensor([1]))
    assert state.length <= 6
    assert state.capacity <= 20
    alone, wanted = model.start(memory, 8), []
    for t in range(3):
        hidden_alone, alone, _ = model.step(y[:, t : t + 1], alone, memory)
        wanted.append(hidden_alone)
    torch.testing.assert_close(hidden[1], wanted[-1][0])


@torch.no_grad()
def test_a_model_in_half_precision_keeps_its_state_in_fp32():
    torch.manual_seed(0)
    model = build(TransformerConfig(**SHAPE, cell="ssru"), V, V).eval()
    x, keep, y = padded(LENGTHS, V, V, T)
    memory = model.encode(x, keep)
    wanted = model.step(y, model.start(memory, T), memory).hidden
    model, found = model.bfloat16(), []
    memory = model.encode(x, keep)
    whole = model.step(y, model.start(memory, T), memory).hidden
    state = model.start(memory, T)
    for t in range(T):
        hidden, state, _ = model.step(y[:, t : t + 1], state, memory)
        found.append(hidden)
    again = model.reread(y, [T] * len(x), memory).hidden
    assert state.cells.dtype == torch.float32
    for hidden in (whole, torch.cat(found, dim=1), again.view_as(whole)):
        assert hidden.dtype == torch.bfloat16
        torch.testing.assert_close(hidden.float(), wanted, atol=0.1, rtol=0.1)


def test_frequencies_of_marian():
    """The last frequency is 1/10000, where ours would be the next."""
    table = positions(3, 6, kind="marian")
    wanted = torch.tensor([[t * 10_000 ** -(i / 2) for i in range(3)] for t in range(3)])
    torch.testing.assert_close(table, torch.cat([wanted.sin(), wanted.cos()], dim=1))
    assert positions(2, 2, kind="marian").tolist() == positions(2, 2).tolist()


def test_self_attention_of_the_decoder_is_refused():
    model = filled(TransformerConfig(**SHAPE, cell="ssru"), V, V)
    x, keep, y = padded(LENGTHS, V, V, T)
    memory = model.encode(x, keep)
    with pytest.raises(ConfigError, match=r"no self-attention \(model\.cell=ssru\)"):
        model.step(y, model.start(memory, T), memory, NeedWeights(self_attention=True))
    assert model.encode(x, keep, NeedWeights()).weights.shape == (4, 1, 2, 6, 6)


def test_cells_by_family():
    assert Config.build({"model": {"family": "transformer", "cell": "ssru"}}).model.cell == "ssru"
    assert Config.build({"model": {"family": "transformer"}}).model.cell == "self-attention"
    assert Config.build({"model": {"family": "rnn", "cell": "ssru"}}).model.cell == "ssru"
    with pytest.raises(ConfigError, match=r"'lstm'.*self-attention.*ssru"):
        Config.build({"model": {"family": "transformer", "cell": "lstm"}})
    with pytest.raises(ConfigError, match=r"'self-attention'.*gru.*lstm.*rnn.*ssru"):
        Config.build({"model": {"family": "rnn", "cell": "self-attention"}})


def test_memory_that_does_not_grow_with_the_tokens():
    attention, recurrent = (
        MemoryNeed.of(TransformerConfig(layers=6, inner=64, cell=cell), 8000) for cell in ("self-attention", "ssru")
    )
    assert recurrent.target < attention.target
    assert recurrent.step > attention.step


@pytest.mark.parametrize(
    "config",
    [
        RnnConfig(width=4, embedding=3, layers=2, cell="ssru"),
        RnnConfig(width=4, embedding=3, order="luong", cell="ssru", bridge="copy"),
        FixedConfig(width=4, embedding=3, bidirectional=False, cell="ssru"),
    ],
    ids=str,
)
def test_as_the_cell_of_an_rnn(config):
    """Steps of training are those of decoding, every weight has a gradient, and there is no matrix U."""
    model = filled(config, V, V)
    x, keep, y = padded(LENGTHS, V, V, T)
    memory = model.encode(x, keep)
    whole = model.logits(model.step(y, model.start(memory, T), memory).hidden)
    with torch.no_grad():
        again, found = model.encode(x, keep), []
        state = model.start(again, T)
        for t in range(T):
            hidden, state, _ = model.step(y[:, t : t + 1], state, again)
            found.append(model.logits(hidden))
    torch.testing.assert_close(torch.cat(found, dim=1), whole.detach())
    whole.square().sum().backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()] == []
    assert not [name for name in model.state_dict() if "cells.0.U" in name or "weight_hh" in name]
    for b, length in enumerate(LENGTHS):
        assert not memory.h[b, length:].any()


@torch.no_grad()
def test_the_encoder_of_an_rnn_token_by_token():
    model = filled(RnnConfig(width=4, embedding=3, bidirectional=False, cell="ssru"), V, V)
    x, keep, _ = padded(LENGTHS, V, V, T)
    memory, rnn = model.encode(x, keep), model.encoder.rnn
    for b, length in enumerate(LENGTHS):
        c = torch.zeros(4, dtype=torch.float64)
        for j, e in enumerate(model.encoder.embedding(x[b, :length])):
            f, g = F.linear(e, rnn.weight_ih_l0, rnn.bias_ih_l0).chunk(2)
            c = torch.sigmoid(f) * c + (1 - torch.sigmoid(f)) * g
            torch.testing.assert_close(memory.h[b, j], torch.relu(c))
        torch.testing.assert_close(memory.last[1][b], c)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["transformer", "rnn"])
def test_it_is_trained_saved_and_loaded(tmp_path: Path, family: str):
    model = {"family": family, "cell": "ssru", "width": 32}
    settings = small(training={"steps": 20}) | {
        "model": model | ({"heads": 2, "layers": 1} if family[0] == "t" else {})
    }
    heedful.train(copies(), tmp_path / "m", settings=settings, verbose=False)
    translator = heedful.load(tmp_path / "m", "cpu")
    assert translator.config.model.cell == "ssru"
    text = copies()[0][0]
    greedy, links = translator.translate(text), translator.translate(text, trace="links")
    assert greedy.text == links.text
    assert translator.translate(text, beam=3).text
    if family == "transformer":
        assert [group.kind for group in translator.see(text).groups] == ["encoder", "cross"]
        with pytest.raises(ConfigError, match="no self-attention"):
            translator.decoder_self_attention(text)


@torch.no_grad()
def test_a_sentence_that_enters_begins_with_a_state_of_zeros():
    """In a slot, and in the place of a row: what another sentence has left there is gone."""
    model = filled(TransformerConfig(**SHAPE, cell="ssru"), V, V)
    x, keep, y = padded([6, 6], V, V, T)
    memory = model.encode(x, keep)
    second = memory.select(torch.tensor([1]))
    wanted = [model.logits(hidden) for hidden in model.step(y[1:, :3], model.start(second, T), second).hidden[0]]

    slots = model.slots(model.encode(x, keep), 1, 9)
    for t in range(2):
        slots.step(y[:, t], torch.full((2,), t))
        slots.advance(None)
    slots.put(torch.tensor([0]), second)
    state = model.start(memory, 9)
    for t in range(2):
        state = model.step(y[:, t : t + 1], state, memory).state
    state = state.put(torch.tensor([0]), model.start(second, 9))
    both = memory.select(torch.tensor([1, 1]))
    for t in range(3):
        tokens = torch.stack([y[1, t], y[0, t + 2]])
        torch.testing.assert_close(slots.step(tokens, torch.tensor([t, t + 2]))[0], wanted[t])
        slots.advance(None)
        hidden, state, _ = model.step(tokens[:, None], state, both)
        torch.testing.assert_close(model.logits(hidden[0, 0]), wanted[t])


@torch.no_grad()
def test_hypotheses_in_slots_continue_their_parents():
    model = filled(TransformerConfig(**SHAPE, cell="ssru"), V, V)
    x, keep, y = padded([6, 4], V, V, T)
    memory = model.encode(x, keep)
    rows = torch.tensor([0, 0, 1, 1])
    y = torch.cat([y, y.flip(1)])[torch.tensor([0, 2, 1, 3])]
    slots, state, parents = model.slots(model.encode(x, keep), 2, 9), model.start(memory, 9), torch.tensor([1, 1, 3, 2])
    state = state.select(rows)
    for t in range(4):
        hidden, state, _ = model.step(y[:, t : t + 1], state, memory)
        torch.testing.assert_close(slots.step(y[:, t], torch.full((2,), t)), model.logits(hidden[:, 0]))
        state = state.select(parents)
        slots.advance(parents)
