"""Forced prefixes of translations, and source words that are copied into them."""

from __future__ import annotations

import pytest
import torch
from random_translators import fits, random_translator

import heedful
from heedful.decoding import Decoding
from heedful.errors import ConfigError, DataError
from heedful.text import UNKNOWN
from heedful.translator.pipeline import _word_at

PARAGRAPH = "\n  A b, c.  Then d!\t\tE f?\u00a0(g h)\n\n\nBead cafe. "
SHORT = Decoding(max_length=7)
TRANSLATOR = random_translator("rnn", "word")

# --- prefixes


def test_prefixes():
    one, two = TRANSLATOR.translate(["a b", "c! D e."], SHORT, prefix=["A B,", "C"])
    assert one.text.startswith("A B,")
    assert two.sentences[0].text.startswith("C")
    both = TRANSLATOR.translate(["a b", "c d"], SHORT, prefix="THEN")
    assert all(t.text.startswith("THEN") for t in both)
    assert TRANSLATOR.translate("a b", SHORT, prefix="").text == TRANSLATOR.translate("a b", SHORT).text
    # a prefix of the whole length that is allowed
    assert TRANSLATOR.translate("a", Decoding(max_length=2, beam=2), prefix="A B").text == "A B"
    found = TRANSLATOR.translate("a", Decoding(beam=3, n_best=3), prefix="A B")
    assert all(t.text.startswith("A B") for t in found.n_best)
    long = " ".join("ABCDEFGH" * 12)  # longer than what 'a' may have without it
    assert TRANSLATOR.translate("a", prefix=long).text.startswith(long)


@pytest.mark.parametrize(
    ("texts", "prefix", "error", "words"),
    [
        ("a", "A Delhi B ज़", DataError, ": Delhi, ज़"),
        ("a", "A B C D E F G H", ConfigError, "has 8 tokens, more than max_length, 7"),
        (["a", "b"], ["A"], DataError, "2 texts but 1 prefixes; give one for all, or one for each"),
        ("a", 5, DataError, "5 is no list of texts"),
        (["a"], [5], DataError, "5 is no text"),
    ],
)
def test_prefixes_that_cannot_be(texts, prefix, error, words):
    with pytest.raises(error) as caught:
        TRANSLATOR.translate(texts, SHORT, prefix=prefix)
    assert words in str(caught.value)
    if isinstance(texts, str):
        with pytest.raises(error):
            TRANSLATOR.stream(texts, SHORT, prefix=prefix)


# --- copied words


def unknowing(name: str) -> heedful.Translator:
    """A model that writes nothing but unknown words, until it has to end."""
    translator = random_translator(name, "word", spread=1.5)
    model = translator.parts.model
    with torch.no_grad():
        (model.b_o if name == "post" else model.output.W.bias)[UNKNOWN] += 100
    return translator


COPY = 'Zoë (Ravi), a "Delhi" b; O\'Neil.'


def test_a_word_is_copied_without_the_marks_around_it():
    codec = TRANSLATOR.parts.source
    source = codec.trace(COPY, codec.encode(COPY))
    found = {COPY[slice(*span)]: _word_at(source, i) for i, span in enumerate(source.spans[:-1])}
    assert {w: found[w] for w in ("Zoë", "Ravi", "a", "Delhi", "b", "O'Neil")} == {
        w: w for w in ("Zoë", "Ravi", "a", "Delhi", "b", "O'Neil")
    }
    assert found[","] == "Ravi),"  # the mark itself was looked at
    pieces = random_translator("rnn", "char").parts.source
    source = pieces.trace(COPY, pieces.encode(COPY))
    found = [_word_at(source, i) for i, (start, end) in enumerate(source.spans[:-1]) if COPY[start:end].isalpha()]
    assert found == [w for w in ("Zoë", "Ravi", "a", "Delhi", "b", "O'Neil") for c in w if c.isalpha()]


@pytest.mark.parametrize("trace", [True, False])
@pytest.mark.parametrize("name", ["rnn", "post"])
def test_unknown_words_are_copied(name, trace):
    translator, how = unknowing(name), Decoding(max_length=6)
    plain = translator.translate(COPY, how)
    assert plain.text == " ".join(["<unk>"] * 6)
    found = translator.translate(COPY, how, copy_unknown=True, trace=trace)
    source, weights = plain.trace.source, plain.trace.weights.mean((0, 1))[:6, :-1]
    got = [_word_at(source, int(best)) for best in weights.argmax(1)]
    assert found.text == " ".join(got)
    assert found.score == pytest.approx(plain.score, abs=1e-4)
    if trace:
        fits(found.trace, COPY, found.text)
        assert [w.text for w in found.trace.target.words] == [*found.text.split(), "</s>"]
        assert found.trace.target.tokens == plain.trace.target.tokens


def test_known_words_stay():
    how = Decoding(max_length=5)
    translator = random_translator("rnn", "word")
    with torch.no_grad():
        translator.parts.model.output.W.bias[UNKNOWN] -= 100
    assert translator.translate(PARAGRAPH, how, copy_unknown=True).text == translator.translate(PARAGRAPH, how).text


def test_every_alternative_copies_its_own():
    found = unknowing("rnn").translate("Ravi", Decoding(beam=2, n_best=2, max_length=3), copy_unknown=True)
    assert all("<unk>" not in t.text and "Ravi" in t.text for t in found.n_best)


@pytest.mark.parametrize("nothing", ["▁", " ▁ ▁"])
def test_a_text_without_tokens(nothing):
    found = unknowing("rnn").translate(nothing, Decoding(max_length=2), copy_unknown=True)
    assert found.text.strip() == "<unk> <unk>"


@pytest.mark.parametrize("trace", [True, False])
def test_a_fixed_model_has_nothing_to_copy_from(trace):
    translator = random_translator("fixed", "word")
    with pytest.raises(ConfigError, match="copy_unknown needs a model with attention.*'fixed'"):
        translator.translate("a b", copy_unknown=True, trace=trace)
