"""Links between the words of translations and of given pairs, with every way to decode and every family."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from random_translators import random_folder, random_parts, random_translator

import heedful
from heedful.alignment.links import align_trace
from heedful.alignment.symmetrize import symmetrize
from heedful.decoding import Decoding
from heedful.errors import ConfigError, DataError, ModelError
from heedful.interop.folder import read_model, set_aside, write_model, write_readout
from heedful.observe import read_attention
from heedful.trace import Word
from heedful.trace.alignment import Alignment
from heedful.trace.readout import Readout
from heedful.translator.aligning import combine, usual_symmetry

LOOKING = ("rnn", "luong", "transformer", "post")
WAYS = {
    "greedy": Decoding(),
    "beam": Decoding(beam=3, n_best=3),
    "sample": Decoding(sample=True, n_best=2, seed=3),
}
READOUTS = [Readout(1, (2,), "next"), Readout(1, norms=True), Readout(None, (), "next", norms=True, end="drop")]


def with_readout(name: str, readout: Readout | None = None, seed: int = 1) -> heedful.Translator:
    return heedful.Translator(replace(random_parts(name, seed=seed), readout=readout))


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("name", LOOKING)
def test_every_way_to_write(name, how):
    for text in ("a b, c d.", "A bead. Then face d!", "cafe"):
        done = random_translator(name).translate(text, how)
        for one in done.n_best or (done,):
            found = one.alignment
            assert found is one.alignment  # worked out once
            for side, words in ((text, found.source), (one.text, found.target)):
                assert [side[word.start : word.end] for word in words] == side.split()
            assert found.weights.shape == (len(found.target), len(found.source))
            for s, t, weight in found.links:
                assert weight == pytest.approx(found.weights[t, s])
            assert Alignment.build(json.loads(json.dumps(one.plain()["alignment"]))).pairs == found.pairs


def test_a_blank_text_has_no_links():
    done = random_translator("rnn").translate("  ")
    assert done.alignment.links == ()
    assert done.plain()["alignment"] is None


def test_a_model_without_attention_has_none():
    done = random_translator("fixed").translate("a b c")
    with pytest.raises(ConfigError, match="this model has no attention.*rnn and transformer"):
        _ = done.alignment
    assert done.plain()["alignment"] is None


@pytest.mark.parametrize("readout", READOUTS, ids=str)
def test_a_trace_is_read_as_the_readout_has_it(readout):
    """Against a reading of the same tokens with all that there is to read."""
    translator = with_readout("transformer", readout)
    parts = translator.parts
    index = {parts.target.token(i): i for i in range(len(parts.target))}
    written = translator.translate("a b, c d. bead").sentences[0].trace
    (given,) = translator.reread(["a b, c d."], ["BEAD A, FACE"])
    for trace in (written, given):
        x = torch.tensor([parts.source.encode(trace.source.text).ids])
        memory = parts.model.encode(x, torch.ones_like(x, dtype=torch.bool))
        (reading,) = read_attention(
            parts.model, memory, [[index[token] for token in trace.target.tokens]], after=True, norms=True
        )
        assert trace.readout == readout
        np.testing.assert_allclose(trace.tokens(), reading.by(readout), atol=1e-5)
        np.testing.assert_allclose(trace.weights, reading.weights, atol=1e-5)
        assert not np.allclose(trace.tokens(), reading.weights.mean((0, 1)), atol=1e-2)


@pytest.mark.parametrize("readout", READOUTS, ids=str)
def test_single_heads_are_read_as_the_readout_is(tmp_path: Path, readout: Readout):
    folder = random_folder(tmp_path / "m", "transformer")
    write_readout(folder, readout)
    translator = heedful.load(folder)
    trace = translator.translate("A b! C d!").trace
    assert sum(trace.source.ends) == 2
    assert trace.reading == readout.reading
    write_readout(folder, replace(readout, layer=2, heads=(1,)))
    other = heedful.load(folder).translate("A b! C d!").trace
    np.testing.assert_allclose(trace.only(2, 1).words(), other.words(), atol=1e-5)


def test_models_of_an_ensemble_are_read_each_by_its_own(tmp_path: Path):
    names = {"transformer": Readout(2, (1,), "next"), "rnn": Readout(1, (1,), norms=True)}
    for name, readout in names.items():
        write_readout(random_folder(tmp_path / name, name), readout)
    both = heedful.load([tmp_path / name for name in names])
    pair = ["a b c, d."], ["A B, bead."]
    (trace,) = both.reread(*pair)
    each = [heedful.load(tmp_path / name).reread(*pair)[0].tokens() for name in names]
    np.testing.assert_allclose(trace.tokens(), np.mean(each, axis=0), atol=1e-5)
    assert str(trace.readout) == "mean of 2 models, each by its own read-out"
    assert both.translate("a b. c d").alignment.weights.shape[1] == 4
    twice = heedful.load([tmp_path / "rnn", tmp_path / "rnn"])
    assert twice.readout == names["rnn"]
    np.testing.assert_allclose(twice.reread(*pair)[0].tokens(), each[1], atol=1e-5)
    # Single heads of several models are read so where that is the mean of theirs, and otherwise said to be raw.
    assert (trace.raw, twice.reread(*pair)[0].raw) == (True, True)
    (same,) = heedful.load([tmp_path / "transformer"] * 2).reread(*pair)
    (one,) = heedful.load(tmp_path / "transformer").reread(*pair)
    assert not same.raw
    for at in ((2, 1), (1, 2)):
        np.testing.assert_allclose(same.only(*at).tokens(), one.only(*at).tokens(), atol=1e-5)


def test_an_ensemble_with_a_model_that_does_not_look(tmp_path: Path):
    folders = [random_folder(tmp_path / name, name) for name in ("rnn", "fixed")]
    (alone,) = heedful.load(folders[0]).align(["a b c"], ["A B"])
    (both,) = heedful.load(folders).align(["a b c"], ["A B"])
    np.testing.assert_allclose(both.weights, alone.weights, atol=1e-5)


SOURCES, TARGETS = ["a b c d", "bead, cafe", "", "a"], ["A C B", "FACE D E", "B", ""]


@pytest.mark.parametrize("name", LOOKING)
def test_given_pairs(name):
    translator = random_translator(name)
    found = translator.align(SOURCES, TARGETS)
    assert [(len(one.source), len(one.target)) for one in found] == [(4, 3), (2, 3), (0, 1), (1, 0)]
    assert [bool(one.links) for one in found[2:]] == [False, False]
    for one, trace in zip(found, translator.reread(SOURCES, TARGETS), strict=True):
        assert one.links == align_trace(trace, spaced=True).links


@pytest.mark.parametrize("how", ["", "union", "intersection", "grow-diag", "none"])
def test_two_directions(how):
    """Words that have several links each, which a threshold below 1 stands for, grow together."""
    forward = with_readout("rnn", Readout(1, threshold=0.5))
    back = random_translator("transformer", seed=2)
    both = forward.align(SOURCES, TARGETS, reverse=back, symmetry=how)
    one, other = forward.align(SOURCES, TARGETS), back.align(TARGETS, SOURCES)
    for found, a, b in zip(both, one, other, strict=True):
        flipped = frozenset((t, s) for s, t in b.pairs)
        assert found.pairs == (a.pairs if how == "none" else symmetrize(a.pairs, flipped, how or "grow-diag-final-and"))
        assert found.readout.symmetry == (how or "grow-diag-final-and")
        if how != "none":
            np.testing.assert_allclose(found.weights, (a.weights + b.weights.T) / 2)


def test_two_directions_whose_words_are_linked_to_their_best_ones_are_multiplied():
    forward, back = random_translator("rnn"), random_translator("transformer", seed=2)
    found = forward.align(SOURCES, TARGETS, reverse=back)
    wanted = forward.align(SOURCES, TARGETS, reverse=back, symmetry="product")
    assert [one.links for one in found] == [one.links for one in wanted]
    assert {one.readout.symmetry for one in found} == {"product"}
    best = Readout(1, end="drop")
    assert usual_symmetry(best, best) == "product"
    for other in (Readout(1, end="stop"), Readout(1, end="drop", threshold=0.5)):
        assert usual_symmetry(best, other) == usual_symmetry(other, best) == "grow-diag-final-and"
        assert usual_symmetry(replace(other, symmetry="union"), best) == "union"


def test_the_symmetry_of_the_readout_holds_where_there_are_two():
    forward, back = with_readout("rnn", Readout(1, symmetry="union")), random_translator("rnn", seed=2)
    assert forward.align(SOURCES, TARGETS, reverse=back)[0].readout.symmetry == "union"
    assert forward.align(SOURCES, TARGETS)[0].readout.symmetry == "none"


def test_what_cannot_be_joined():
    translator = random_translator("rnn")
    with pytest.raises(ConfigError, match="'both'; choose one of .*product"):
        translator.align(SOURCES, TARGETS, symmetry="both", reverse=translator)
    with pytest.raises(ConfigError, match="there is no reverse model"):
        translator.align(SOURCES, TARGETS, symmetry="union")
    with pytest.raises(DataError, match="2 sentences but 1 translations"):
        translator.align(["a", "b"], ["A"])


def test_a_readout_is_kept_in_the_folder(tmp_path: Path):
    folder = random_folder(tmp_path / "m", "transformer")
    assert read_model(folder).readout is None
    assert heedful.load(folder).readout == Readout(end="drop", marks="apart", even=True)
    readout = Readout(2, (1,), "next", end="drop", threshold=0.5, chosen="on gold")
    write_readout(folder, readout)
    assert heedful.load(folder).readout == readout
    heedful.load(folder).save(tmp_path / "again")
    assert heedful.load(tmp_path / "again").readout == readout
    # Other weights have another read-out.
    aside = set_aside(tmp_path / "again")
    assert heedful.load(aside).readout == readout
    write_model(folder, random_parts("transformer", seed=5))
    assert read_model(folder).readout is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "readout.json: this is not JSON"),
        ("[]", "readout.json: this is not a read-out"),
        ('{"layer": 1, "head": 2}', "unknown keys 'head'"),
        ('{"step": "then"}', "step is 'then'; choose from same, next"),
        ('{"layer": 3}', "readout.json: there is no layer 3; choose one from 1 to 2"),
        ('{"heads": [1, 3]}', "readout.json: there is no head 3; choose one from 1 to 2"),
    ],
)
def test_a_broken_readout_is_said(tmp_path: Path, content: str, words: str):
    folder = random_folder(tmp_path / "m", "transformer")
    (folder / "readout.json").write_text(content)
    with pytest.raises(ModelError, match=f"{words}.*heedful readout") as error:
        heedful.load(folder)
    assert str(error.value).count("readout.json") == 1


def test_a_readout_that_is_no_file(tmp_path: Path):
    folder = random_folder(tmp_path / "m", "rnn")
    (folder / "readout.json").mkdir()
    with pytest.raises(ModelError, match="this is a folder, expected a plain file"):
        heedful.load(folder)


def test_two_models_that_cut_otherwise_are_not_joined():
    """In scripts without spaces a word is a token, and the tokens of two models differ."""
    one = Alignment(
        (Word("你", 0, 1, 0, 1), Word("好", 1, 2, 1, 2)), (Word("hi", 0, 2, 0, 1),), (), np.ones((1, 2), np.float32)
    )
    other = Alignment((Word("hi", 0, 2, 0, 1),), (Word("你好", 0, 2, 0, 1),), (), np.ones((1, 1), np.float32))
    with pytest.raises(ConfigError, match="different words"):
        combine(one, other, "union")
