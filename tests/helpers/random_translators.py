"""Translators with random weights, made without training: their output is noise, but well-formed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from conftest import copies

import heedful
from heedful.config import Config
from heedful.interop.folder import ModelParts, write_model
from heedful.models import build
from heedful.text import Codec
from heedful.trace import Trace

MODELS: dict[str, dict[str, object]] = {
    "rnn": {"family": "rnn", "width": 8, "embedding": 6},
    "luong": {"family": "rnn", "order": "luong", "score": "general", "width": 8, "embedding": 6, "cell": "lstm"},
    "fixed": {"family": "fixed", "width": 8, "embedding": 6},
    "transformer": {"family": "transformer", "width": 8, "heads": 2, "inner": 12, "layers": 2},
    "post": {"family": "transformer", "width": 12, "heads": 3, "inner": 8, "layers": 1, "norm": "post", "bias": True},
    "ssru": {"family": "transformer", "width": 8, "heads": 2, "inner": 12, "layers": 2, "cell": "ssru"},
}
# Attention in a window, whose rows may be zeros: `fits` does not hold for it.
LOCAL: dict[str, dict[str, object]] = {"local": {**MODELS["luong"], "window": "monotonic", "window_width": 1}}
# Letters as in `copies`, with punctuation, and words that have several tokens.
TEXTS = [
    *(x for pair in copies(60) for x in pair),
    "A b, c. Then d! E f? (g h) bead cafe, deaf; face: a.",
    "A B, C. THEN D! E F? (G H) BEAD CAFE, DEAF; FACE: A.",
]


def random_parts(name: str, kind: str = "bpe", seed: int = 1, spread: float = 0.7, max_length: int = 256) -> ModelParts:
    """Return a model with random weights that are large enough to prefer some tokens to others."""
    text = {"kind": kind, "size": 60, "max_length": max_length}
    config = Config.build({"model": {**MODELS, **LOCAL}[name], "text": text})
    codec = Codec.train(TEXTS, config.text)
    torch.manual_seed(seed)
    model = build(config.model, len(codec), len(codec)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=spread)
    return ModelParts(config, model, codec, codec)


def random_translator(
    name: str, kind: str = "bpe", seed: int = 1, spread: float = 0.7, max_length: int = 256
) -> heedful.Translator:
    return heedful.Translator(random_parts(name, kind, seed, spread, max_length))


def random_folder(path: Path, name: str, kind: str = "bpe", seed: int = 1) -> Path:
    write_model(path, random_parts(name, kind, seed))
    return path


def fits(trace: Trace, text: str, translation: str) -> None:
    """Check what holds for every trace: words and spans lie in the texts, rows sum to 1, no number is missing."""
    assert (trace.source.text, trace.target.text) == (text, translation)
    for side in (trace.source, trace.target):
        assert len(side.tokens) == len(side.spans)
        assert [i for w in side.words for i in range(w.first, w.last)] == list(range(len(side.tokens)))
        for word in side.words:
            assert word.text in ("</s>", side.text[word.start : word.end])
            assert 0 <= word.start <= word.end <= len(side.text)
        assert all(a.end <= b.start for a, b in pairwise(side.words))
    assert len(trace.confidences()) == len(trace.target.words)
    if trace.weights is not None:
        assert trace.weights.shape[2:] == (len(trace.target.tokens), len(trace.source.tokens))
        np.testing.assert_allclose(trace.weights.sum(-1), 1, atol=1e-5)
        np.testing.assert_allclose(trace.words().sum(-1), 1, atol=1e-5)
