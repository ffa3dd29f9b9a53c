from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests_helpers import train_tiny

import heedful
from heedful.errors import HeedfulError
from heedful.trace import Trace


@pytest.fixture(scope="module")
def translator(tiny: Path) -> heedful.Translator:
    return heedful.load(tiny, "cpu")


def test_a_translation_has_what_was_promised(
    translator: heedful.Translator, capsys: pytest.CaptureFixture[str]
) -> None:
    found = translator.translate("a b c")
    assert isinstance(found, heedful.Translation)
    assert str(found) == found.text
    assert found.score < 0 < found.confidence <= 1
    assert found.trace.source.text == "a b c"
    assert found.trace.target.text == found.text
    found.show()
    assert "weight from:" in capsys.readouterr().out


def test_score_and_confidence_follow_from_the_trace(translator: heedful.Translator) -> None:
    found = translator.translate("a b c d")
    assert found.score == pytest.approx(float(found.trace.log_probs.sum()), abs=1e-4)
    assert found.confidence == pytest.approx(float(np.exp(found.trace.log_probs.mean())), abs=1e-4)


def test_the_trace_fits_the_words(translator: heedful.Translator) -> None:
    trace = translator.translate("a bb c").trace
    assert trace.weights is not None
    assert trace.weights.shape == (1, 1, len(trace.target.tokens), len(trace.source.tokens))
    weights = trace.words()
    assert weights is not None
    assert weights.shape == (len(trace.target.words), len(trace.source.words))
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)
    for side in (trace.source, trace.target):
        for word in side.words[:-1]:
            assert side.text[word.start : word.end] == word.text


def test_many_at_once_equals_one_by_one(translator: heedful.Translator) -> None:
    texts = ["a b", "", "c d e f g", "h", "   ", "a", "zz a", "b a c"]
    together = translator.translate(texts, batch_tokens=12)
    assert [t.source for t in together] == texts
    for text, one in zip(texts, together, strict=True):
        alone = translator.translate(text)
        assert alone.text == one.text
        assert alone.score == pytest.approx(one.score, abs=1e-4)
        if alone.trace.weights is not None:
            np.testing.assert_allclose(alone.trace.weights, one.trace.weights, atol=1e-5)


@pytest.mark.parametrize("blank", ["", " ", "\t \u00a0"])
def test_a_blank_text_stays_blank(translator: heedful.Translator, blank: str) -> None:
    found = translator.translate(blank)
    assert (found.text, found.score, found.confidence) == ("", 0.0, 1.0)
    assert [w.text for w in found.trace.target.words] == ["</s>"]


def test_nothing_gives_nothing(translator: heedful.Translator) -> None:
    assert translator.translate([]) == []


def test_without_a_trace(translator: heedful.Translator) -> None:
    found = translator.translate("a b", trace=False)
    assert found.text == translator.translate("a b").text
    with pytest.raises(HeedfulError, match="trace=True"):
        _ = found.trace


def test_a_trace_survives_json(translator: heedful.Translator) -> None:
    trace = translator.translate("a b c").trace
    again = Trace.build(json.loads(json.dumps(trace.plain())))
    assert again.source == trace.source
    assert again.target == trace.target
    np.testing.assert_array_equal(again.weights, trace.weights)


def test_the_fixed_model_has_nothing_to_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = train_tiny(tmp_path / "m", model={"family": "fixed"}, training={"steps": 3})
    found = heedful.load(out, "cpu").translate("a b")
    assert found.trace.weights is None
    assert found.plain()["weights"] is None
    found.show()
    assert "no attention" in capsys.readouterr().out


def test_a_very_long_sentence_is_translated(translator: heedful.Translator) -> None:
    found = translator.translate(" ".join("abcdefgh"[i % 8] for i in range(2000)))
    assert len(found.trace.source.tokens) == 2001
