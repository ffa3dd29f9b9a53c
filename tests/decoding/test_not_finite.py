"""Models that compute something that is not a number: one clear error, and nobody else's sentence is touched."""

from __future__ import annotations

import math

import pytest
import torch
from random_translators import random_parts, random_translator

import heedful
from heedful.decoding import ContinuousBatch, Decoding
from heedful.errors import ConfigError, ModelError, NotFiniteError
from heedful.interop.folder import read_model, write_model
from heedful.text import END
from heedful.translator import Translator


def overflowing(word: str = "g", name: str = "transformer") -> Translator:
    """A translator with finite weights whose scores overflow for a text with a word in it."""
    parts = random_parts(name, kind="word")
    encoded = parts.source.encode(word).ids[0]
    with torch.no_grad():
        parts.model.state_dict()["source.weight"][encoded] = 3e38
    return Translator(parts)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["rnn", "transformer"])
def test_weights_that_are_not_finite_are_refused_by_name(tmp_path, name: str, value: float) -> None:
    parts = random_parts(name)
    weights = parts.model.state_dict()
    key = sorted(weights)[0]
    with torch.no_grad():
        weights[key].view(-1)[3] = value
    write_model(tmp_path / "m", parts)
    with pytest.raises(ModelError, match=f"'{key}'") as caught:
        read_model(tmp_path / "m")
    assert "1 of" in str(caught.value)
    with pytest.raises(ModelError, match=key):
        heedful.load(tmp_path / "m", "cpu")


def test_weights_too_large_for_float32_are_refused(tmp_path) -> None:
    parts = random_parts("rnn")
    key = sorted(parts.model.state_dict())[0]
    parts.model.double()
    with torch.no_grad():
        parts.model.state_dict()[key].view(-1)[0] = 1e200
    write_model(tmp_path / "m", parts)
    with pytest.raises(ModelError, match=key):
        read_model(tmp_path / "m")


@pytest.mark.parametrize("name", ["rnn", "luong", "fixed", "transformer"])
@pytest.mark.parametrize(
    "how",
    [Decoding(), Decoding(beam=3), Decoding(beam=3, n_best=2), Decoding(sample=True), Decoding(sample=True, top_k=5)],
)
def test_scores_that_overflow_are_a_clear_error(name: str, how: Decoding) -> None:
    parts = random_parts(name)
    with torch.no_grad():
        for weight in parts.model.parameters():
            weight.mul_(1e38).clamp_(-3e38, 3e38)
    translator = Translator(parts)
    with pytest.raises(NotFiniteError, match="finite|not numbers|NaN"):
        translator.translate("a b", how)
    # Links need attention before anything else.
    with pytest.raises(ConfigError if name == "fixed" else NotFiniteError, match="finite|not numbers|NaN|no attention"):
        translator.align(["a b"], ["A B"])
    if how.beam == 1 and how.n_best == 1:
        with pytest.raises(NotFiniteError):
            list(translator.stream("a b", how))


def test_one_that_overflows_does_not_touch_the_others() -> None:
    """Its place in the batch is not given to the next, who would read what is not a number behind a mask."""
    translator, plain = overflowing(), random_translator("transformer", kind="word")
    model = translator.parts.model

    def encoded(*texts: str) -> list[tuple[int, ...]]:
        return [translator.parts.source.encode(text).ids for text in texts]

    def memory(*texts: str):
        ids = encoded(*texts)
        x = torch.tensor([[*each, *[0] * (max(map(len, ids)) - len(each))] for each in ids])
        return model.encode(x, x != 0)

    batch = ContinuousBatch(model)
    with torch.inference_mode():
        batch.join(memory("a b c", "g", "d e f"), [0, 1, 2], [9, 9, 9], [(), (), ()])
        found = dict(batch.step())
        assert not found[1].finite
        assert found[1].ids == (END,)
        batch.join(memory("h"), [3], [9], [()])
        while len(batch):
            found |= dict(batch.step())
    assert all(found[row].finite for row in (0, 2, 3))
    for row, text in ((0, "a b c"), (2, "d e f"), (3, "h")):
        wanted = plain.translate(text, Decoding(max_length=8)).text
        assert translator.parts.target.decode(found[row].ids) == wanted
