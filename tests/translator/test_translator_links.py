"""`trace="links"`: only the weights by the read-out, with the same links, alarms and confidences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from random_translators import random_parts, random_translator

import heedful
from heedful.alignment.links import align_trace
from heedful.decoding import Decoding
from heedful.errors import ConfigError
from heedful.trace.readout import Readout
from heedful.translator.aligning import align_translations

TEXTS = ["a b, c d.", "A bead. Then face d!", "cafe", "  ", "a b c d e f a b c d e f."]
FAMILIES = ("rnn", "luong", "transformer", "post", "fixed")
WAYS = {
    "greedy": Decoding(),
    "beam": Decoding(beam=3, n_best=2),
    "sample": Decoding(sample=True, n_best=2, seed=3),
    "forced": Decoding(min_length=3, max_length=5, no_repeat=2),
}
READOUTS = {"default": None, "next": Readout(1, (1,), "next"), "norms": Readout(1, norms=True, end="drop")}


def with_readout(name: str, readout: Readout | None) -> heedful.Translator:
    return heedful.Translator(replace(random_parts(name), readout=readout))


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("readout", READOUTS.values(), ids=READOUTS)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_as_with_all_weights(name, readout, how):
    translator = with_readout(name, readout)
    whole, found = (translator.translate(TEXTS, how, trace=trace) for trace in (True, "links"))
    for one, other in zip(whole, found, strict=True):
        assert (one.text, one.score, one.notes) == (other.text, other.score, other.notes)
        for a, b in zip(one.n_best or (one,), other.n_best or (other,), strict=True):
            assert b.trace.weights is None
            assert (b.trace.source, b.trace.target) == (a.trace.source, a.trace.target)
            np.testing.assert_array_equal(a.trace.log_probs, b.trace.log_probs)
            assert a.trace.confidences() == b.trace.confidences()
            if name == "fixed" or not a.length:
                assert b.trace.read is None
                continue
            np.testing.assert_allclose(a.trace.words(), b.trace.words(), atol=1e-6)
            assert a.alignment.pairs == b.alignment.pairs
            assert [alarm.message for alarm in a.alarms] == [alarm.message for alarm in b.alarms]
            assert bool(b.sentence_alignments.links) == bool(b.text)


@pytest.mark.parametrize("name", ["rnn", "transformer"])
def test_log_probabilities_are_those_of_reading_again(name):
    """Those of decoding are in the trace; the model computes the same for a given translation."""
    translator = random_translator(name)
    for done in translator.translate(TEXTS[:3], max_length=8):
        for part in done.sentences:
            again = translator.attention.read(*_read(translator, part), weights=False)
            np.testing.assert_allclose(part.trace.log_probs, again[0].log_probs, atol=1e-5)
            links = translator.attention.read_links(*_read(translator, part))
            np.testing.assert_allclose(part.trace.log_probs, links[0].log_probs, atol=1e-5)
            np.testing.assert_allclose(links[0].read, part.trace.tokens(), atol=1e-6)


def _read(translator, part):
    from heedful.translator.pipeline import DecodePipeline

    pipeline = DecodePipeline(translator.parts, translator.device, Decoding(), translator.attention)
    memory = pipeline.encode([translator.source_codec.encode(part.source)])
    vocabulary = {translator.parts.target.token(i): i for i in range(len(translator.parts.target))}
    return memory, [[vocabulary[token] for token in part.trace.target.tokens]]


def test_scores_of_tokens_are_computed_by_decoding_alone(monkeypatch):
    translator = random_translator("transformer")
    logits, rows = translator.parts.model.logits, []
    monkeypatch.setattr(
        translator.parts.model, "logits", lambda hidden: rows.append(hidden.shape[:-1].numel()) or logits(hidden)
    )
    translator.translate("a b c", trace=False)
    alone = list(rows)
    for trace in (True, "links"):
        rows.clear()
        translator.translate("a b c", trace=trace)
        assert rows == alone
    rows.clear()
    assert translator.align(["a b"], ["c d"])[0].links
    assert not rows


def test_an_ensemble(monkeypatch):
    parts = [random_parts(name, seed=seed) for name, seed in (("rnn", 1), ("transformer", 2))]
    model = heedful.translator.translator.Ensemble([one.model for one in parts])
    readouts = [Readout(1, (1,)), Readout(1, (2,), "next", norms=True)]
    translator = heedful.Translator(replace(parts[0], model=model), None, readouts)
    whole, found = (translator.translate(TEXTS[:3], trace=trace) for trace in (True, "links"))
    for one, other in zip(whole, found, strict=True):
        np.testing.assert_allclose(one.trace.read, other.trace.read, atol=1e-6)
        assert one.alignment.pairs == other.alignment.pairs
        again = translator.score([one.source], [one.text])[0] if len(one.sentences) == 1 else None
        assert again is None or np.isfinite(again.score)


def test_other_kinds_of_traces_are_refused():
    with pytest.raises(ConfigError, match="trace.*'link'.*links"):
        random_translator("rnn").translate("a", trace="link")


def test_links_of_many_translations():
    done = [one for one in random_translator("transformer").translate(TEXTS * 60, trace="links") if one.length]
    found = list(align_translations(done))
    assert len(found) == len(done) > 200
    for one, alignment in zip(done, found, strict=True):
        assert alignment == align_trace(one.trace, spaced=True)
    words = list(align_translations(done[:2], spaced=False))
    assert words == [one.alignment for one in done[:2]]
    assert list(align_translations([])) == []


def test_unknown_pieces_and_long_pairs_of_many_texts():
    translator = random_translator("rnn")
    texts = ["a Ω b", "", "a", "ΩΩ x", "a\u0301Ω b"]
    for target in (False, True):
        assert translator.unknown_pieces(texts, target=target) == [translator.unknown(t, target=target) for t in texts]
    assert translator.unknown("a Ω b") == ["Ω"]
    assert translator.unknown_pieces([]) == []
    sides = ["a", "a " * 3000, "a"], ["b", "b", "b " * 9000]
    found = translator.pairs_too_long(*sides)
    assert [bool(why) for why in found] == [False, True, True]
    assert found == [translator.too_long(*pair) for pair in zip(*sides, strict=True)]
