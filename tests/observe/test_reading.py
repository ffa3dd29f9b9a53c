"""Reading a sentence again gives what was seen while it was written."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from heedful.attention import until
from heedful.config import FixedConfig, ModelConfig, RnnConfig, TransformerConfig
from heedful.errors import ConfigError, NotFiniteError
from heedful.models import NeedWeights, build
from heedful.observe import AttentionReading, read_attention, read_by_readout
from heedful.text import END, PAD, START
from heedful.trace.readout import Readout

VOCABULARY = 12
LENGTHS = [3, 7, 1, 5]
TARGETS = [[5, 6, END], [END], [7, 4, 4, 8, 11, END], [9, 10, 5, END]]
CONFIGS: dict[str, ModelConfig] = {
    "bahdanau": RnnConfig(width=8, embedding=6, layers=2, score="additive", cell="gru"),
    "luong": RnnConfig(width=8, embedding=6, score="general", order="luong", cell="lstm", tied=True),
    "fixed": FixedConfig(width=8, embedding=6, cell="gru", context="every"),
    "transformer": TransformerConfig(layers=1, decoder_layers=2, width=8, heads=4, inner=12),
}
models = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def make(config: ModelConfig):
    torch.manual_seed(3)
    model = build(config, VOCABULARY, VOCABULARY).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.8)
    return model


def sentences() -> tuple[Tensor, Tensor]:
    keep = until(torch.tensor(LENGTHS))
    x = torch.randint(4, VOCABULARY, keep.shape, generator=torch.Generator().manual_seed(2))
    return x.masked_fill(~keep, PAD), keep


def slowly(model, x: Tensor, target: list[int]) -> AttentionReading:
    """One sentence alone, one token after the other."""
    memory = model.encode(x[None], torch.ones(1, len(x), dtype=torch.bool))
    state, word, weights, log_probs = model.start(memory, len(target)), START, [], []
    for following in target:
        hidden, state, seen = model.step(torch.tensor([[word]]), state, memory, NeedWeights())
        logits = model.logits(hidden)[0, 0]
        logits[START] = -torch.inf  # it can follow nothing, and has no share
        log_probs.append(torch.log_softmax(logits, -1)[following].item())
        weights.append(seen)
        word = following
    joined = None if weights[0] is None else torch.cat(weights, dim=3)[0].numpy()
    return AttentionReading(joined, np.array(log_probs, dtype=np.float32))


@models
@torch.no_grad()
def test_equals_what_was_seen_step_by_step(config):
    model, (x, keep) = make(config), sentences()
    found = read_attention(model, model.encode(x, keep), TARGETS)
    assert len(found) == len(TARGETS)
    for b, reading in enumerate(found):
        wanted = slowly(model, x[b, : LENGTHS[b]], TARGETS[b])
        np.testing.assert_allclose(reading.log_probs, wanted.log_probs, atol=1e-4)
        assert (reading.weights is None) == (wanted.weights is None)
        if wanted.weights is not None:
            np.testing.assert_allclose(reading.weights, wanted.weights, atol=1e-5)


@models
@torch.no_grad()
def test_padding_is_cut_off(config):
    model, (x, keep) = make(config), sentences()
    for length, target, reading in zip(
        LENGTHS, TARGETS, read_attention(model, model.encode(x, keep), TARGETS), strict=True
    ):
        assert reading.log_probs.shape == (len(target),)
        assert reading.log_probs.dtype == np.float32
        assert bool((reading.log_probs < 0).all())
        if isinstance(config, FixedConfig):
            assert reading.weights is None
        else:
            assert reading.weights.shape[2:] == (len(target), length)
            assert reading.weights.dtype == np.float32
            np.testing.assert_allclose(reading.weights.sum(-1), 1.0, atol=1e-5)


@models
@torch.no_grad()
def test_a_sentence_does_not_depend_on_its_batch(config):
    model, (x, keep) = make(config), sentences()
    memory = model.encode(x, keep)
    together = read_attention(model, memory, TARGETS)
    for b, target in enumerate(TARGETS):
        (alone,) = read_attention(model, memory.select(torch.tensor([b])), [target])
        np.testing.assert_allclose(alone.log_probs, together[b].log_probs, atol=1e-4)
        if alone.weights is not None:
            np.testing.assert_allclose(alone.weights, together[b].weights, atol=1e-5)


def test_reading_works_where_gradients_are_on():
    model, (x, keep) = make(CONFIGS["bahdanau"]), sentences()
    found = read_attention(model, model.encode(x, keep), TARGETS)
    assert isinstance(found[0].weights, np.ndarray)


@models
@torch.no_grad()
def test_a_few_at_a_time_is_the_same(config, monkeypatch):
    model, (x, keep) = make(config), sentences()
    memory = model.encode(x, keep)
    whole = read_attention(model, memory, TARGETS)
    sizes, logits = [], model.logits
    monkeypatch.setattr(model, "logits", lambda hidden: sizes.append(len(hidden)) or logits(hidden))
    monkeypatch.setattr("heedful.observe.reading.POSITIONS", 8)
    for some, found in zip(whole, read_attention(model, memory, TARGETS), strict=True):
        np.testing.assert_allclose(found.log_probs, some.log_probs, atol=1e-5)
    assert sizes == [8, 6], "of the 14 real tokens, padding has no scores"


READOUTS = {
    "mean": Readout(),
    "layer": Readout(2, (1, 3)),
    "next": Readout(1, (2,), "next"),
    "norms": Readout(2, norms=True),
    "both": Readout(None, (1, 4), "next", norms=True),
}


@pytest.mark.parametrize("readout", READOUTS.values(), ids=READOUTS)
@pytest.mark.parametrize("log_probs", [False, True])
@torch.no_grad()
def test_by_a_readout_equals_all_weights_mixed(readout, log_probs):
    model, (x, keep) = make(CONFIGS["transformer"]), sentences()
    memory = model.encode(x, keep)
    whole = read_attention(model, memory, TARGETS, after=True, norms=True)
    found = read_by_readout(model, memory, TARGETS, readout, log_probs=log_probs)
    for some, one in zip(whole, found, strict=True):
        np.testing.assert_allclose(one.read, some.by(readout), atol=1e-6)
        assert one.weights is None
        if log_probs:
            np.testing.assert_allclose(one.log_probs, some.log_probs, atol=1e-5)
        else:
            assert one.log_probs is None


@torch.no_grad()
def test_by_a_readout_of_recurrent_models(monkeypatch):
    (x, keep) = sentences()
    for name in ("bahdanau", "luong"):
        model = make(CONFIGS[name])
        memory = model.encode(x, keep)
        readout = Readout(1, (1,), "next", norms=True)
        whole = read_attention(model, memory, TARGETS, after=True, norms=True)
        monkeypatch.setattr(model, "logits", None)  # is not called
        for some, one in zip(whole, read_by_readout(model, memory, TARGETS, readout), strict=True):
            np.testing.assert_allclose(one.read, some.by(readout), atol=1e-6)
    model = make(CONFIGS["fixed"])
    found = read_by_readout(model, model.encode(x, keep), TARGETS, Readout(1, (1,)), log_probs=True)
    assert all(one.read is None and one.log_probs is not None for one in found)
    assert read_by_readout(model, model.encode(x, keep), [], Readout()) == []


@torch.no_grad()
def test_weights_alone(monkeypatch):
    model, (x, keep) = make(CONFIGS["transformer"]), sentences()
    memory = model.encode(x, keep)
    whole = read_attention(model, memory, TARGETS, after=True)
    monkeypatch.setattr(model, "logits", None)  # is not called
    for some, one in zip(whole, read_attention(model, memory, TARGETS, after=True, log_probs=False), strict=True):
        np.testing.assert_allclose(one.weights, some.weights, atol=1e-6)
        np.testing.assert_allclose(one.after, some.after, atol=1e-6)
        assert one.log_probs is None
    with pytest.raises(ConfigError, match="head 5"):
        read_by_readout(model, memory, TARGETS, Readout(1, (5,)))


@pytest.mark.parametrize("log_probs", [False, True])
@torch.no_grad()
def test_weights_that_are_not_numbers(log_probs):
    """Those of a sentence are an error, as its scores are; those of padding are not."""
    model, (x, keep) = make(CONFIGS["transformer"]), sentences()
    model.decoder[0].across.W.weight[0, 0] = torch.inf
    memory = model.encode(x, keep)
    for read in (
        lambda: read_by_readout(model, memory, TARGETS, Readout(), log_probs=log_probs),
        lambda: read_attention(model, memory, TARGETS, log_probs=log_probs),
    ):
        with pytest.raises(NotFiniteError, match="scores" if log_probs else "attention weights"):
            read()
    model = make(CONFIGS["bahdanau"])
    model.embedding.weight[PAD] = torch.nan
    assert len(read_by_readout(model, model.encode(x, keep), TARGETS, Readout(1, (1,)))) == len(TARGETS)
