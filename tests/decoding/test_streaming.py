"""Streaming: word by word the same as all at once, in text, probabilities and weights."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from random_translators import MODELS, random_translator

from heedful.decoding import Decoding
from heedful.errors import ConfigError, DataError
from heedful.text import END

SAMPLE = Decoding(sample=True, temperature=1.3, top_p=0.95, seed=5)
WAYS = {
    "greedy": Decoding(max_length=9),
    "sample": replace(SAMPLE, max_length=9),
    "rules": Decoding(max_length=9, no_repeat=2),
}
TEXTS = {
    "one": "a b c",
    "spaced": "  a b  ",
    "several": " A b, c.  \n\n\tThen d! E f?\u00a0",
    "strange": "a ज़ b. \x0b Bead.",
    "unspaced": "A b! 我看。你去。C d.",
}


def same(translator, text: str, how: Decoding, split: bool = True) -> None:
    tokens = list(translator.stream(text, how, split=split))
    whole = translator.translate(text, how, split=split)
    assert "".join(t.text for t in tokens) == whole.text
    assert [t.log_prob for t in tokens] == pytest.approx(whole.trace.log_probs.tolist(), abs=1e-4)
    assert sum(t.log_prob for t in tokens) == pytest.approx(whole.score, abs=1e-3)
    parts = whole.sentences or (whole,)
    assert [t.end for t in tokens] == [
        i == n for n in (len(p.trace.log_probs) - 1 for p in parts) for i in range(n + 1)
    ]
    at = 0
    for part in parts:
        trace = part.trace
        for place in range(len(trace.log_probs)):
            token = tokens[at]
            assert token.source.tokens == trace.source.tokens
            assert token.source.text == part.source.strip()
            assert (token.weights is None) == (trace.weights is None)
            if trace.weights is not None:
                np.testing.assert_allclose(token.weights, trace.weights[:, :, place], atol=1e-5)
            at += 1
    assert at == len(tokens)


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_a_stream_is_the_translation(name, how):
    translator = random_translator(name)
    for text in TEXTS.values():
        same(translator, text, how)


@pytest.mark.parametrize("kind", ["word", "char", "bpe"])
@pytest.mark.parametrize("seed", range(2))
def test_whatever_the_tokens_are(kind, seed):
    translator = random_translator("transformer", kind, seed)
    for text in TEXTS.values():
        same(translator, text, replace(SAMPLE, seed=seed, max_length=12))
        same(translator, text, Decoding(max_length=5), split=False)


def test_a_sentence_that_is_too_long():
    translator = random_translator("rnn", "word", max_length=4)
    same(translator, "a b c d e, f g h a b. C d", Decoding(max_length=5))


def test_nothing_written_leaves_the_spacing():
    """Sentences of which nothing is written, at the beginning, between others, and at the end."""
    translator = random_translator("rnn", "word", seed=3, spread=0.1)
    with torch.no_grad():
        translator.parts.model.output.W.bias[END] = 3.5  # about as probable as all the others together
    text, seen = " A b.  C d!\n E f?\tBead (g). ", set()
    for seed in range(15):
        how = Decoding(sample=True, seed=seed, max_length=2)
        same(translator, text, how)
        seen.add(tuple(not p.text for p in translator.translate(text, how).sentences))
    assert len(seen) > 4, "all are alike: nothing was tested"


def test_prefix():
    translator = random_translator("transformer", "word")
    how = Decoding(max_length=6)
    tokens = list(translator.stream("a b. C d.", how, prefix="A B, C"))
    whole = translator.translate("a b. C d.", how, prefix="A B, C")
    assert "".join(t.text for t in tokens) == whole.text
    assert whole.text.startswith("A B, C")
    assert [t.text for t in tokens][:4] == ["A", " B", ",", " C"]
    # the first token is a space alone, of which nothing is seen: the spacing comes once, with the second
    tokens = list(random_translator("rnn", "char").stream("\n a b", how, prefix="A B"))
    assert [t.text for t in tokens][:4] == ["", "\n A", "", " B"]


def test_a_token_is_given_as_soon_as_it_is_decided(monkeypatch):
    translator = random_translator("rnn", "word")
    model, steps = translator.parts.model, []
    step = model.step
    monkeypatch.setattr(model, "step", lambda *given: steps.append(1) or step(*given))
    tokens = translator.stream("A b. C d.", Decoding(min_length=3))
    assert not steps
    for count in range(1, 6):
        next(tokens)
        assert len(steps) == count
    tokens.close()


def test_a_long_stream_decodes_no_token_many_times(monkeypatch):
    translator = random_translator("rnn", "char", max_length=400)
    decoded = []
    codec = translator.parts.target
    decode = type(codec).read
    monkeypatch.setattr(
        type(codec), "read", lambda self, ids, *more: decoded.append(len(ids)) or decode(self, ids, *more)
    )
    how = Decoding(sample=True, min_length=300, max_length=320)
    tokens = list(translator.stream("a b c", how))
    assert len(tokens) > 300
    assert sum(decoded) < 10 * len(tokens), "as many as tokens, squared"
    monkeypatch.undo()
    assert "".join(t.text for t in tokens) == translator.translate("a b c", how).text


@pytest.mark.parametrize("how", [Decoding(max_length=3), Decoding(sample=True, max_length=3)], ids=["greedy", "sample"])
def test_a_stream_that_was_cut_off_says_so_as_a_translation_does(how):
    translator, seen = random_translator("rnn", "word", seed=4), set()
    for text in ("a b", "c", "d e", "b a g", "h", "f", "f g", "g b d"):
        notes = [note for token in translator.stream(text, how) for note in token.notes]
        assert tuple(notes) == translator.translate(text, how).notes
        seen.add(len(notes))
    assert seen == {0, 1}, "all are alike: nothing was tested"


def test_others_can_work_between_two_tokens():
    """A stream that waits must not keep others from learning: the mode in which no gradients are kept is its own."""
    translator = random_translator("rnn", "word")
    tokens = translator.stream("a b c", Decoding(min_length=3))
    first = next(tokens)
    model = translator.parts.model
    model.embedding.weight.sum().backward()
    assert model.embedding.weight.grad is not None
    first.weights[:] = 0  # its weights are its own, too
    assert np.isclose(next(tokens).weights.sum(), 1, atol=1e-5)


@pytest.mark.parametrize("blank", ["", "  ", "\n \t"])
def test_blank(blank):
    translator = random_translator("rnn")
    assert list(translator.stream(blank)) == []
    assert translator.translate(blank).text == ""


@pytest.mark.parametrize("how", [Decoding(beam=2), Decoding(sample=True, n_best=2)])
def test_what_cannot_be_streamed(how):
    with pytest.raises(ConfigError, match="beam"):
        random_translator("rnn").stream("a", how)  # at once, not at the first token


@pytest.mark.parametrize("text", [5, None, ["a"], b"a"])
def test_what_is_no_text(text):
    with pytest.raises(DataError, match=re.escape(repr(text))):
        random_translator("rnn").stream(text)
