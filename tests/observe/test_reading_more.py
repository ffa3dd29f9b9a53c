"""Reading one token further, and by the length of what is let through: against a slow way that is plainly right."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from heedful.config import RnnConfig, TransformerConfig
from heedful.decoding.ensemble import Ensemble
from heedful.models import NeedWeights, build
from heedful.observe import read_attention
from heedful.text import END, PAD, START
from heedful.trace.readout import Readout

VOCABULARY = 12
LENGTHS = [3, 7, 1, 5]
TARGETS = [[5, 6, END], [END], [7, 4, 4, 8, 11, END], [9, 10, 5, END]]
CONFIGS = {
    "bahdanau": RnnConfig(width=8, embedding=6, layers=2, cell="gru"),
    "luong": RnnConfig(width=8, embedding=6, score="general", order="luong", cell="lstm", tied=True),
    "transformer": TransformerConfig(layers=1, decoder_layers=2, width=8, heads=4, inner=12),
    "post": TransformerConfig(layers=2, width=12, heads=3, inner=12, norm="post"),
}
models = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def make(config, seed=3):
    torch.manual_seed(seed)
    model = build(config, VOCABULARY, VOCABULARY).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.8)
    return model


def sentences():
    keep = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    x = torch.randint(4, VOCABULARY, keep.shape, generator=torch.Generator().manual_seed(2))
    return x.masked_fill(~keep, PAD), keep


@models
@torch.no_grad()
def test_the_next_step_is_that_of_a_decoder_which_reads_on(config):
    """Word by word: the weights of the step that reads y_t, which the same step has as those of y_{t+1}."""
    model, (x, keep) = make(config), sentences()
    for b, (length, target) in enumerate(zip(LENGTHS, TARGETS, strict=True)):
        memory = model.encode(x[b : b + 1, :length], keep[b : b + 1, :length])
        state, seen = model.start(memory, len(target) + 1), []
        for word in (START, *target):
            _, state, weights = model.step(torch.tensor([[word]]), state, memory, NeedWeights())
            seen.append(weights[0, :, :, 0].numpy())
        reading = read_attention(model, model.encode(x, keep), TARGETS, after=True)[b]
        L, H = reading.weights.shape[:2]
        for layer in range(1, L + 1):
            for head in range(1, H + 1):
                mine = np.stack([step[layer - 1, head - 1] for step in seen])
                np.testing.assert_allclose(reading.by(Readout(layer, (head,))), mine[:-1], atol=1e-5)
                np.testing.assert_allclose(reading.by(Readout(layer, (head,), "next")), mine[1:], atol=1e-5)


@models
@torch.no_grad()
def test_reading_further_changes_nothing_else(config):
    model, (x, keep) = make(config), sentences()
    memory = model.encode(x, keep)
    for plain, more in zip(
        read_attention(model, memory, TARGETS),
        read_attention(model, memory, TARGETS, after=True, norms=True),
        strict=True,
    ):
        assert plain.after is None
        assert plain.norms is None
        np.testing.assert_allclose(more.weights, plain.weights, atol=1e-6)
        np.testing.assert_allclose(more.log_probs, plain.log_probs, atol=1e-5)


@torch.no_grad()
def test_norms_of_the_transformer_are_the_lengths_of_what_is_added():
    """‖α f(h_j)‖ from the vectors themselves, f(h) = W_o^i (W_v^i h + b_v)."""
    model, (x, keep) = make(CONFIGS["transformer"]), sentences()
    memory = model.encode(x, keep)
    for b, reading in enumerate(read_attention(model, memory, TARGETS, norms=True)):
        for layer, module in enumerate(model.decoder):
            W, bias, D, C = module.across.W.weight, module.across.W.bias, 8, 2
            for head in range(4):
                rows = slice(2 * D + head * C, 2 * D + (head + 1) * C)
                v = memory.h[b, : LENGTHS[b]] @ W[rows].T + bias[rows]
                f = v @ module.across.W_o.weight[:, head * C : (head + 1) * C].T
                alpha = torch.from_numpy(reading.weights[layer, head])
                lengths = (alpha[:, :, None] * f).norm(dim=-1)
                found = reading.by(Readout(layer + 1, (head + 1,), norms=True))
                np.testing.assert_allclose(found, lengths / lengths.sum(-1, keepdim=True), atol=1e-4)


@pytest.mark.parametrize("name", ["bahdanau", "luong"])
@torch.no_grad()
def test_norms_of_a_recurrent_model_are_those_of_the_states(name):
    model, (x, keep) = make(CONFIGS[name]), sentences()
    memory = model.encode(x, keep)
    for b, reading in enumerate(read_attention(model, memory, TARGETS, norms=True)):
        lengths = (torch.from_numpy(reading.weights[0, 0])[:, :, None] * memory.h[b, : LENGTHS[b]]).norm(dim=-1)
        found = reading.by(Readout(1, (1,), norms=True))
        np.testing.assert_allclose(found, lengths / lengths.sum(-1, keepdim=True), atol=1e-5)


@torch.no_grad()
def test_norms_are_the_same_when_weights_are_laid_out_for_decoding():
    from heedful.models import pack_weights

    model, (x, keep) = make(CONFIGS["transformer"]), sentences()
    memory = model.encode(x, keep)
    before = model.norms(memory)
    pack_weights(model)
    torch.testing.assert_close(model.norms(memory), before)


@torch.no_grad()
def test_norms_of_an_ensemble_are_the_mean():
    one, two, (x, keep) = make(CONFIGS["transformer"]), make(CONFIGS["transformer"], 4), sentences()
    both = Ensemble([one, two])
    memory = both.encode(x, keep)
    mean = (one.norms(one.encode(x, keep)) + two.norms(two.encode(x, keep))) / 2
    torch.testing.assert_close(both.norms(memory), mean)
