"""Texts of several sentences, sentences that are too long, n-best lists, and inputs that are no text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from random_translators import fits, random_translator

from heedful.decoding import Decoding
from heedful.errors import DataError
from heedful.text import END
from heedful.text.segments import split
from heedful.trace import Trace
from heedful.translator.translation import gap_between

PARAGRAPH = "\n  A b, c.  Then d!\t\tE f?\u00a0(g h)\n\n\nBead cafe. "
SHORT = Decoding(max_length=7)
words = pytest.mark.parametrize("kind", ["word", "bpe", "char"])
families = pytest.mark.parametrize("name", ["rnn", "fixed", "transformer"])


# --- several sentences


@words
@families
def test_sentences_are_translated_as_they_would_be_alone(name, kind):
    translator = random_translator(name, kind)
    found = translator.translate(PARAGRAPH, SHORT)
    spans = split(PARAGRAPH)
    assert len(found.sentences) == len(spans) == 5
    for part, (start, end) in zip(found.sentences, spans, strict=True):
        single = translator.translate(PARAGRAPH[start:end], SHORT)
        assert (part.source, part.text) == (PARAGRAPH[start:end], single.text)
        assert part.score == pytest.approx(single.score, abs=1e-3)
        if single.trace.weights is not None:
            np.testing.assert_allclose(part.trace.weights, single.trace.weights, atol=1e-5)
    assert found.score == pytest.approx(sum(p.score for p in found.sentences))
    assert found.length == sum(p.length for p in found.sentences)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from(["A b.", "C d!", "Bead?", "e", " ", "  ", "\n", "\t", "\u3000", "。", "我", "\x85", "ज"]))
)
def test_the_spacing_is_put_back_exactly(pieces):
    text, translator = "".join(pieces), TRANSLATOR
    found = translator.translate(text, SHORT)
    wanted, at = "", 0
    for start, end in split(text):
        single = translator.translate(text[start:end], SHORT).text
        wanted += (text[at:start] or gap_between(wanted, single)) + single
        at = end
    assert found.text == (wanted + text[at:] if split(text) else "")
    if found.text:
        fits(found.trace, text, found.text)


TRANSLATOR = random_translator("rnn", "word")


@words
@families
def test_the_trace_of_a_paragraph(name, kind):
    found = random_translator(name, kind).translate(PARAGRAPH, SHORT)
    trace = found.trace
    fits(trace, PARAGRAPH, found.text)
    assert [w.text for w in trace.source.words].count("</s>") == 5
    assert [w.text for w in trace.source.words if w.text != "</s>"] == PARAGRAPH.split()
    assert found.score == pytest.approx(float(trace.log_probs.sum()), abs=1e-3)
    row = column = 0
    for part in found.sentences:
        T, S = len(part.trace.target.tokens), len(part.trace.source.tokens)
        if trace.weights is not None:
            block = trace.weights[:, :, row : row + T]
            np.testing.assert_array_equal(block[..., column : column + S], part.trace.weights)
            assert block.sum() == pytest.approx(part.trace.weights.sum())  # it looks at nothing else
        for mine, theirs in zip(trace.target.spans[row : row + T], part.trace.target.spans, strict=True):
            assert found.text[slice(*mine)] == part.text[slice(*theirs)]
        row, column = row + T, column + S
    assert (row, column) == (len(trace.target.tokens), len(trace.source.tokens))


def test_the_trace_of_a_long_text_is_made_when_asked_for(monkeypatch):
    """It has as many numbers as the text has tokens, squared, times all heads."""
    found = TRANSLATOR.translate(PARAGRAPH, SHORT)
    joins = []
    join = Trace.join
    monkeypatch.setattr(Trace, "join", lambda *given: joins.append(1) or join(*given))
    found = TRANSLATOR.translate([PARAGRAPH, "a b."], SHORT)
    assert not joins
    fits(found[0].trace, PARAGRAPH, found[0].text)
    assert found[0].trace is found[0].trace
    assert len(joins) == 1


def test_without_splitting():
    found = TRANSLATOR.translate(PARAGRAPH, SHORT, split=False)
    assert len(found.sentences) == 1
    inner = PARAGRAPH.strip()
    single = TRANSLATOR.translate(inner, SHORT, split=False)
    assert found.text == "\n  " + single.text + " "
    fits(found.trace, PARAGRAPH, found.text)


# --- too long


def test_a_sentence_that_is_too_long_is_cut_and_says_so():
    translator = random_translator("transformer", "word", max_length=6)
    text = "a b c, d e f g h a bead. A cafe. C d e f g h a b c d e f g"
    found = translator.translate(text, SHORT)
    parts = [p.source for p in found.sentences]
    assert parts == ["a b c,", "d e f g h", "a bead.", "A cafe.", "C d e f g", "h a b c d", "e f g"]
    assert all(len(p.trace.source.tokens) <= 6 for p in found.sentences)
    assert tuple(note for note in found.notes if "cut off" not in note) == (
        "a sentence of 13 tokens is longer than this model reads at once (6, text.max_length); it was translated in "
        "3 parts",
        "a sentence of 14 tokens is longer than this model reads at once (6, text.max_length); it was translated in "
        "3 parts",
    )
    assert found.plain()["notes"] == list(found.notes)
    assert not any("longer" in note for note in translator.translate("A cafe. C d e f.", SHORT).notes)
    fits(found.trace, text, found.text)
    again = translator.translate(text, SHORT, split=False)
    assert len(again.sentences) >= 5
    assert "longer than this model reads" in again.notes[0]


def test_one_endless_word_is_cut_too():
    translator = random_translator("rnn", "char", max_length=10)
    text = "abcdefgh" * 10
    found = translator.translate(text, SHORT)
    assert "".join(p.source for p in found.sentences) == text
    assert all(len(p.trace.source.tokens) <= 10 for p in found.sentences)
    fits(found.trace, text, found.text)


def test_a_translation_that_was_cut_off_says_so():
    translator = random_translator("rnn", "word")
    with torch.no_grad():
        translator.parts.model.output.W.bias[END] = -30
    found = translator.translate("a b", Decoding(max_length=3))
    assert found.notes == ("the translation was cut off after 3 tokens, as max_length says",)
    assert found.length == 4


# --- alternatives


@pytest.mark.parametrize("how", [Decoding(beam=5, n_best=4), Decoding(sample=True, n_best=4)], ids=["beam", "sample"])
@families
def test_alternatives_have_their_traces(name, how):
    translator = random_translator(name)
    for text in ("a b c", PARAGRAPH):
        found = translator.translate(text, how)
        assert len(found.n_best) == 4
        assert (found.text, found.score) == (found.n_best[0].text, found.n_best[0].score)
        for other in found.n_best:
            fits(other.trace, text, other.text)
            assert other.score == pytest.approx(float(other.trace.log_probs.sum()), abs=1e-3)
            assert other.confidence == pytest.approx(float(np.exp(other.trace.log_probs.mean())), abs=1e-4)
            assert not other.n_best
        assert len(found.plain()["n_best"]) == 4
    ranked = translator.translate("a b c", Decoding(beam=5, n_best=4)).n_best
    assert [t.confidence for t in ranked] == sorted((t.confidence for t in ranked), reverse=True)


def spaced_translator():
    """One that writes A, B and spaces, about as probable: many of its translations read alike."""
    translator = random_translator("rnn", "char")
    model, codec = translator.parts.model, translator.parts.target
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.output.W.bias[:] = -30
        for token, bias in (("▁", 0.9), ("A", 1.0), ("B", 0.5)):
            (index,) = (i for i in range(len(codec)) if codec.token(i) == token)
            model.output.W.bias[index] = bias
        model.output.W.bias[END] = 0.8
    return translator


def test_alternatives_read_differently():
    translator = spaced_translator()
    for beam, n_best, most in ((4, 3, 6), (5, 4, 9), (16, 9, 5)):
        how = Decoding(beam=beam, n_best=n_best, max_length=most, penalty="none")
        found = translator.translate(["a b", "c"], how)
        for each in found:
            texts = [t.text for t in each.n_best]
            assert len(set(texts)) == len(texts) == n_best
            scores = [t.score for t in each.n_best]
            assert scores == sorted(scores, reverse=True)
            assert each.text == translator.translate("a b", replace(how, n_best=1)).text
            assert not any("n_best" in note for note in each.notes)
    # of each text the best way to write it: "" without a space, "A" and "B" with none before them
    wide = translator.translate("a", Decoding(beam=90, n_best=3, max_length=2, penalty="none")).n_best
    assert [(t.text, t.length) for t in wide] == [("", 1), ("A", 2), ("B", 2)]


def test_fewer_alternatives_than_were_asked_for_are_said():
    found = spaced_translator().translate("a", Decoding(beam=5, n_best=5, max_length=1, no_repeat=1, penalty="none"))
    texts = [t.text for t in found.n_best]
    assert texts[:3] == ["", "A", "B"]
    found = spaced_translator().translate("a", Decoding(beam=3, n_best=3, max_length=2), prefix="A")
    assert [t.text for t in found.n_best] == ["A"]
    assert found.notes == (
        "only 1 different translation was found, fewer than n_best, 3; a wider beam may find more",
        "the translation was cut off after 2 tokens, as max_length says",
    )


def test_alternatives_of_nothing():
    (found,) = TRANSLATOR.translate([" "], Decoding(beam=3, n_best=3))
    assert [t.text for t in found.n_best] == [""]
    assert not TRANSLATOR.translate(" ").n_best


def test_samples_do_not_depend_on_the_rest():
    how = Decoding(sample=True, n_best=3, seed=7, max_length=9)
    texts = ["a b", "c d e f g h a b", "", "h", PARAGRAPH]
    together = TRANSLATOR.translate(texts, how, batch_tokens=11)
    for text, found in zip(texts, together, strict=True):
        assert [t.text for t in TRANSLATOR.translate(text, how).n_best] == [t.text for t in found.n_best]


# --- what is no text


@pytest.mark.parametrize("given", [5, None, [1], ["a", None], b"a", 1.5, [["a"]]])
def test_what_is_no_text_is_refused(given):
    with pytest.raises(DataError, match="is no (text|list of texts)"):
        TRANSLATOR.translate(given)
    with pytest.raises(DataError, match="is no (text|list of texts)"):
        TRANSLATOR.score(given, ["a"])


def test_any_iterable_of_texts():
    texts = ["a b", "c"]
    wanted = [t.text for t in TRANSLATOR.translate(texts)]
    for some in (tuple(texts), (t for t in texts), dict.fromkeys(texts)):
        assert [t.text for t in TRANSLATOR.translate(some)] == wanted
    scored = TRANSLATOR.score((t for t in texts), (t.upper() for t in texts))
    assert [s.text for s in scored] == ["A B", "C"]
