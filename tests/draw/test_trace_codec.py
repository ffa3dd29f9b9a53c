"""Traces come back from what the page is sent, whole and sentence by sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from random_translators import random_translator

from heedful.draw import heatmap
from heedful.draw.trace_codec import FINEST, decode_trace, encode_trace, split_sentences
from heedful.errors import DataError
from heedful.trace import Text, Trace, Word
from heedful.trace.readout import Readout


@pytest.mark.parametrize("name", ["transformer", "rnn", "fixed"])
@pytest.mark.parametrize("text", ["a b c", "Bead! Cafe deaf. C d", "a </s> b! C"])
def test_a_trace_comes_back(name: str, text: str) -> None:
    translation = random_translator(name).translate(text, trace=True)
    trace = translation.trace
    found = decode_trace(encode_trace(trace, name), text, translation.text)
    assert found.source.words == trace.source.words
    assert found.target.words == trace.target.words
    assert (found.source.tokens, found.target.tokens) == (trace.source.tokens, trace.target.tokens)
    assert found.confidences() == pytest.approx(trace.confidences(), abs=1e-3)
    if name == "fixed":
        assert found.words() is None
    else:
        # Each weight under the floor may be gone.
        np.testing.assert_allclose(found.tokens(), trace.tokens(), atol=FINEST)
    parts = translation.sentences or (translation,)
    back = split_sentences(found)
    assert len(back) == len(parts)
    for one, part in zip(back, parts, strict=True):
        assert one.source.words == part.trace.source.words
        assert one.target.words == part.trace.target.words
        assert heatmap(one) == heatmap(part.trace)


def words(*texts: str) -> Text:
    """A text of words with a token each, and its end."""
    text, found, at = " ".join(texts), [], 0
    for i, word in enumerate(texts):
        found.append(Word(word, at, at + len(word), i, i + 1))
        at += len(word) + 1
    found.append(Word("</s>", len(text), len(text), len(texts), len(texts) + 1))
    return Text(text, (*texts, "</s>"), tuple((w.start, w.end) for w in found), tuple(found))


def test_by_hand() -> None:
    weights = np.array([[0.75, 0.25, 0.0], [0.1, 0.2, 0.7]], dtype=np.float32)
    logs = np.log(np.array([0.5, 0.25], dtype=np.float32))
    readout = Readout(step="next", norms=True)
    trace = Trace(words("a", "b"), words("X"), None, logs, readout, weights)
    found = decode_trace(encode_trace(trace, "m"), "a b", "X")
    np.testing.assert_allclose(found.read, weights, atol=1e-5)
    assert found.confidences() == pytest.approx((0.5, 0.25), abs=1e-4)
    assert str(found.readout) == "mean of all layers and heads; read at the next step; weighted by norms"
    assert split_sentences(found) == [found]
    # What is no attention says so, and nothing is warned of.
    other = Trace(*(trace.source, trace.target), None, logs, Readout(label="what it hung on", attention=False), weights)
    back = decode_trace(encode_trace(other, "m"), "a b", "X")
    assert (str(back.readout), back.readout.attention) == ("what it hung on", False)


@pytest.mark.parametrize(
    "broken",
    [
        {"logs": [0.0]},
        {"read": {"counts": "", "columns": "", "weights": ""}},
        {"read": {"counts": "!", "columns": "", "weights": ""}},
        {"read": {"counts": "AgABAA==", "columns": "AAABAAkA", "weights": "AAAAAAAA"}},
        {"read": 5},
        {"source": {"tokens": ["a"], "words": [["a", 0, 7]]}},
        {"target": {"tokens": ["a"]}},
        {"target": None},
    ],
)
def test_what_is_no_figure(broken: dict[str, Any]) -> None:
    trace = Trace(words("a", "b"), words("X"), None, np.zeros(2, np.float32), read=np.full((2, 3), 1 / 3, np.float32))
    with pytest.raises(DataError, match="this is not a figure"):
        decode_trace({**encode_trace(trace, "m"), **broken}, "a b", "X")
