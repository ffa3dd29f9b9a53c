"""The translator: translate, reread, score, and what it returns."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from random_translators import random_translator
from small_runs import train_tiny

import heedful
from heedful.errors import ConfigError, DataError, HeedfulError
from heedful.models import NeedWeights
from heedful.text import END, START
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
    assert len(found.sentences) == 8
    assert len(found.trace.source.tokens) == 2008  # each part ends with </s>
    assert found.notes[0] == (
        "a sentence of 2,001 tokens is longer than this model reads at once (256, text.max_length); it was translated "
        "in 8 parts"
    )


def test_reading_its_own_words_gives_the_same_trace(translator: heedful.Translator) -> None:
    # Of different lengths, not sorted, twice the same, in batches of a few.
    texts = ["a b c", "h", "c d e f g", "b a", "a b c", "g f e d c b a h"]
    written = translator.translate(texts)
    read = translator.reread(texts, [t.text for t in written], batch_tokens=12)
    assert len(read) == len(texts)
    for mine, found in zip(written, read, strict=True):
        assert (found.source, found.target) == (mine.trace.source, mine.trace.target)
        np.testing.assert_allclose(found.weights, mine.trace.weights, atol=1e-5)
        np.testing.assert_allclose(found.log_probs, mine.trace.log_probs, atol=1e-4)


def test_reading_what_it_would_not_have_written(translator: heedful.Translator) -> None:
    sources, targets = ["a b c", "a b c", "d"], ["A B C", "H zz  A H", "D D D D D"]
    right, wrong, long = translator.reread(sources, targets)
    assert [t.source.text for t in (right, wrong, long)] == sources
    assert [t.target.text for t in (right, wrong, long)] == targets
    assert right.log_probs.sum() > wrong.log_probs.sum()
    assert [w.text for w in wrong.target.words] == ["H", "zz", "A", "H", "</s>"]
    assert long.weights is not None
    assert long.weights.shape == (1, 1, 6, 2)
    np.testing.assert_allclose(long.weights.sum(-1), 1, atol=1e-5)
    alone = translator.reread(["d"], ["D D D D D"])[0]
    np.testing.assert_allclose(alone.weights, long.weights, atol=1e-5)


def test_reading_blank_sentences(translator: heedful.Translator) -> None:
    for trace in translator.reread(["", "a", ""], ["", "", "A B"]):
        assert trace.weights is not None
        assert trace.weights.shape == (1, 1, len(trace.target.tokens), len(trace.source.tokens))
        assert np.isfinite(trace.log_probs).all()


def test_reading_needs_a_translation_for_each(translator: heedful.Translator) -> None:
    with pytest.raises(DataError, match="2 sentences but 1 translations"):
        translator.reread(["a", "b"], ["A"])
    assert translator.reread([], []) == []


def test_a_model_without_attention_reads_without_weights(tmp_path: Path) -> None:
    out = train_tiny(tmp_path / "m", model={"family": "fixed"}, training={"steps": 3})
    translator = heedful.load(out, "cpu")
    written = translator.translate(["a b", "c"])
    for mine, found in zip(written, translator.reread(["a b", "c"], [t.text for t in written]), strict=True):
        assert found.weights is None
        np.testing.assert_allclose(found.log_probs, mine.trace.log_probs, atol=1e-4)


def test_unknown_words_are_named(tiny: Path) -> None:
    translator = heedful.load(tiny)
    assert translator.unknown("") == []
    assert translator.unknown("a b") == []
    assert translator.unknown("a ज b") == ["ज"]


def test_given_translations_are_scored(translator: heedful.Translator) -> None:
    sources, targets = ["a b c", "a b c", "d"], ["A B C", "H zz  A H", ""]
    found = translator.score(sources, targets, batch_tokens=5)
    assert [(t.source, t.text) for t in found] == list(zip(sources, targets, strict=True))
    for each, trace in zip(found, translator.reread(sources, targets), strict=True):
        assert each.score == pytest.approx(float(each.trace.log_probs.sum()), abs=1e-6)
        assert each.length == len(trace.log_probs)
        np.testing.assert_allclose(each.trace.log_probs, trace.log_probs, atol=1e-4)
    assert found[0].score > found[1].score
    written = translator.translate("a b c d")
    assert translator.score(["a b c d"], [written.text])[0].score == pytest.approx(written.score, abs=1e-3)
    with pytest.raises(DataError, match="2 sentences but 1 translations"):
        translator.score(["a", "b"], ["A"])
    with pytest.raises(DataError, match="is no list of texts"):
        translator.score("a", "A")


def test_what_is_too_long_to_be_read_at_once() -> None:
    """Sources have at most text.max_length tokens, here 6; targets 2 · 6 + 20: longer ones would fill the memory."""
    translator = random_translator("transformer", "word", max_length=6)
    longest = "a b c d e", " ".join("A" * 31)
    assert translator.too_long(*longest) == ""
    assert translator.score([longest[0]], [longest[1]])[0].length == 32
    assert len(translator.self_attention(longest[0]).source.tokens) == 6
    said = "a sentence of 7 tokens is longer than this model reads at once (6, text.max_length)"
    assert translator.too_long("a b c d e f") == said
    wide = "a translation of 33 tokens is longer than this model reads at once (32, 2n + 20 for n = text.max_length, 6)"
    assert translator.too_long("a", " ".join("A" * 32)) == wide
    with pytest.raises(DataError, match=re.escape(f"pair 2 of 2: {said}")):
        translator.score(["a", "a b c d e f"], ["A", "B"])
    with pytest.raises(DataError, match=re.escape(wide)):
        translator.reread(["a"], [" ".join("A" * 32)])
    with pytest.raises(DataError, match=re.escape(said)):
        translator.self_attention("a b c d e f")


@pytest.mark.parametrize("name", ["transformer", "post"])
def test_the_attention_inside_a_sentence(name: str) -> None:
    translator = random_translator(name)
    for text in ("a bead c", "  A b. C d "):
        trace = translator.self_attention(text)
        S = len(trace.source.tokens)
        assert trace.source == trace.target
        assert trace.source.text == text
        assert trace.weights is not None
        assert trace.weights.shape == ((2, 2, S, S) if name == "transformer" else (1, 3, S, S))
        np.testing.assert_allclose(trace.weights.sum(-1), 1, atol=1e-5)
        assert trace.confidences() == (1.0,) * len(trace.target.words)
    with pytest.raises(DataError, match="5 is no text"):
        translator.self_attention(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["transformer", "post"])
def test_the_attention_inside_a_translation(name: str) -> None:
    """Causal, over what the decoder reads, and step by step the same."""
    translator = random_translator(name)
    own = translator.translate("a bead c")
    for target in (None, "A face. B"):
        trace = translator.decoder_self_attention("a bead c", target)
        written = translator.score(["a bead c"], [target or own.text])[0].trace.target
        assert trace.source == trace.target
        assert trace.target.tokens == ("<s>", *written.tokens[:-1])
        assert trace.target.text == (own.text if target is None else target)
        assert [word.text for word in trace.target.words] == ["<s>", *(word.text for word in written.words[:-1])]
        assert trace.inside
        weights = trace.weights
        assert weights is not None
        T = len(written.tokens)
        assert weights.shape == ((2, 2, T, T) if name == "transformer" else (1, 3, T, T))
        np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
        assert not np.triu(weights, 1).any()
        for t, step in enumerate(step_by_step(translator, "a bead c", trace.target.text)):
            np.testing.assert_allclose(weights[:, :, t, : t + 1], step, atol=1e-5)
    whole = translator.see("a bead c").group("decoder")
    np.testing.assert_allclose(whole.weights, translator.decoder_self_attention("a bead c").weights, atol=1e-6)


@torch.inference_mode()
def step_by_step(translator: heedful.Translator, text: str, target: str) -> Iterator[NDArray[np.float32]]:
    """The decoder's self-attention of each step, one token at a time.  (L, H, t)."""
    parts = translator.parts
    x = torch.tensor([parts.source.encode(text).ids])
    memory = parts.model.encode(x, torch.ones_like(x, dtype=torch.bool))
    inputs = (START, *parts.target.encode(target).ids[:-1])
    state = parts.model.start(memory, len(inputs))
    for token in inputs:
        step = parts.model.step(torch.tensor([[token]]), state, memory, NeedWeights(self_attention=True))
        state = step.state
        assert step.weights is not None
        yield step.weights[0, :, :, 0].numpy()


@pytest.mark.parametrize("name", ["rnn", "fixed"])
def test_what_reads_by_recurrence_has_no_attention_inside(name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' has no self-attention"):
        random_translator(name).self_attention("a b")
    with pytest.raises(ConfigError, match=f"'{name}' has no self-attention"):
        random_translator(name).decoder_self_attention("a b", "A B")


def test_one_layer_or_head() -> None:
    trace = random_translator("transformer").translate("a b c d").trace
    assert trace.weights is not None
    assert trace.only().weights.shape == trace.weights.shape
    np.testing.assert_array_equal(trace.only(layer=2).weights, trace.weights[1:2])
    np.testing.assert_array_equal(trace.only(head=1).weights, trace.weights[:, :1])
    np.testing.assert_array_equal(trace.only(2, 1).weights, trace.weights[1:, :1])
    np.testing.assert_array_equal(trace.only(1).log_probs, trace.log_probs)
    for given, words in (((0, None), "layer 0"), ((3, None), "layer 3"), ((1, 3), "head 3"), ((None, -1), "head -1")):
        with pytest.raises(ConfigError, match=f"there is no {words}; choose one from 1 to 2"):
            trace.only(*given)
    nothing = random_translator("fixed").translate("a b").trace
    assert nothing.only(1, 1).weights is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.translate("a b", {"beam": 3}), "expected heedful.Decoding"),
        (lambda t: t.stream(["a b"]), "expected one string"),
        (lambda t: t.score(["a", " "], ["A", "B"]), "source 2 of 2 is empty"),
        (lambda t: t.self_attention(""), "the text is empty"),
    ],
)
def test_likely_mistakes_are_explained(tiny: Path, call: Callable[[heedful.Translator], object], message: str) -> None:
    with pytest.raises(HeedfulError, match=message):
        call(heedful.load(tiny, "cpu"))


def test_short_words_for_a_prompt(tiny: Path) -> None:
    translator = heedful.load(tiny, "cpu")
    translation = translator.translate("a b")
    assert repr(translation).startswith(f"Translation('a b' -> '{translation.text}', score=")
    assert "\n" not in repr(translation)
    assert repr(translator).startswith("Translator(rnn, ")


def test_the_default_limit_is_not_blamed_on_a_setting(tiny: Path) -> None:
    translator = heedful.load(tiny, "cpu")
    with torch.no_grad():
        translator.parts.model.output.W.bias[END] = -100.0  # type: ignore[union-attr, index, operator]
    (default,) = translator.translate("a b", heedful.Decoding(min_length=26)).notes  # 2 · 3 + 20, and </s>
    assert default == "the translation was cut off after 26 tokens, 2n + 20 for n source tokens; see max_length"
