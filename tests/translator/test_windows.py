"""Models with a window of attention, whose rows may sum to less than 1: all that reads their weights still works."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import copies
from random_translators import TEXTS

import heedful
from heedful.config import Config
from heedful.interop.folder import ModelParts
from heedful.models import build
from heedful.text import Codec

pytestmark = pytest.mark.usefixtures("one_thread")
WINDOWS = {
    "monotonic": {"order": "bahdanau", "window": "monotonic", "window_width": 1},
    "predictive": {"order": "luong", "window": "predictive", "window_width": 1},
}
LONG = "a b c d e f g h a b c d e f g h"


def translator(window: str) -> heedful.Translator:
    model = {"family": "rnn", "width": 8, "embedding": 6, **WINDOWS[window]}
    config = Config.build({"model": model, "text": {"kind": "word", "size": 60}})
    codec = Codec.train(TEXTS, config.text)
    torch.manual_seed(1)
    network = build(config.model, len(codec), len(codec)).eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.normal_(std=0.7)
    return heedful.Translator(ModelParts(config, network, codec, codec))


@pytest.mark.parametrize("window", WINDOWS)
def test_traces_links_alarms_and_pictures(window, tmp_path: Path):
    model = translator(window)
    texts = ["a b", LONG, "c"]
    for text, done in zip(texts, model.translate(texts, min_length=12, max_length=14), strict=True):
        weights = done.trace.weights
        sums = weights.sum(-1)
        assert np.isfinite(weights).all()
        assert (sums < 1 + 1e-5).all()
        if window == "monotonic" and text == "c":
            assert sums.ravel().tolist() == pytest.approx([1.0] * 3 + [0.0] * (sums.size - 3))
        assert np.isfinite(done.trace.confidences()).all()
        assert isinstance(done.alarms, tuple)
        assert all(0 <= link.source < len(done.alignment.source) for link in done.alignment.links)
        for form in ("svg", "html", "png", "json"):
            done.save(tmp_path / f"one.{form}")
        assert "".join(token.text for token in model.stream(text, min_length=12, max_length=14)) == done.text


@pytest.mark.parametrize("window", WINDOWS)
def test_a_beam_gives_each_sentence_its_own_window(window):
    """Batches of sentences of other lengths, and hypotheses that change places: the same as one by one."""
    model = translator(window)
    texts = [LONG, "a b", "c d e", LONG[:9]]
    together = model.translate(texts, beam=3, n_best=2)
    for text, done in zip(texts, together, strict=True):
        alone = model.translate(text, beam=3, n_best=2)
        assert [one.text for one in alone.n_best] == [one.text for one in done.n_best]
        np.testing.assert_allclose(alone.trace.weights, done.trace.weights, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
def test_training_with_links_and_without(window, tmp_path: Path):
    settings = {"training": {"steps": 30, "warmup": 5, "valid_every": 30, "device": "cpu", "threads": 1}}
    settings |= {"model": {"width": 16, "embedding": 8, **WINDOWS[window]}, "text": {"kind": "word"}}
    pairs = copies(200)
    model = heedful.train(pairs, tmp_path / "m", settings=settings, verbose=False)
    assert model.translate(pairs[0][0]).text
    links = [" ".join(f"{i}-{i}" for i in range(len(y.split()))) for _, y in pairs]
    model = heedful.train(pairs, tmp_path / "linked", settings=settings, links=links, verbose=False)
    assert model.translate(pairs[0][0]).text
