"""The default read-out of opened models: the rule finds a head that we planted, and its result is kept."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

import heedful
from heedful.config import Config
from heedful.data.cache import HEAD
from heedful.errors import ConfigError, DataError
from heedful.interop.folder import ModelParts
from heedful.models import build
from heedful.text import Codec, merge
from heedful.trace import Text
from heedful.trace.readout import Readout
from heedful.translator import default_readout as rule

D, H, LAYERS = 32, 2, 5
WORDS = ["s" + "".join(letters) for letters in product("abcd", "efg", "hijk")]
MEANING = {word: "t" + word[:0:-1] for word in WORDS}
SOURCE = [f"{' '.join(WORDS[i : i + 6])}." for i in range(0, 48, 6)]
USUAL = Readout(end="drop", marks="apart", even=True)


def planted(layer: int = 2, head: int = 1, seed: int = 0) -> ModelParts:
    """Return a model with one head that attends to the source word of the word just read, as if it was opened."""
    text = {"kind": "word", "size": 200}
    model = {"family": "transformer", "layers": LAYERS, "width": D, "heads": H, "inner": 8, "tied": "none"}
    config = Config.build({"model": model, "text": text})
    targets = [" ".join(MEANING.get(word, word) for word in line[:-1].split()) + "." for line in SOURCE]
    source, target = Codec.train(SOURCE, config.text), Codec.train(targets, config.text)
    torch.manual_seed(seed)
    network = build(config.model, len(source), len(target)).eval()
    state = network.state_dict()
    with torch.no_grad():
        for name, weight in state.items():
            if "LN" not in name and "embedding" not in name and "source" not in name:
                weight.zero_()
        vectors = {word: torch.randn(D) for word in [*MEANING, "."]}
        for word, vector in vectors.items():
            for codec, table, written in (
                (source, "source.weight", word),
                (target, "embedding.weight", MEANING.get(word, word)),
            ):
                state[table][codec.encode(written).ids[0]] = vector
        C = D // H
        projection = torch.linalg.qr(torch.randn(D, C))[0].T * 2
        W = state[f"decoder.{layer - 1}.across.W.weight"]
        rows = slice((head - 1) * C, head * C)
        W[:D][rows], W[D : 2 * D][rows] = projection, projection
    return ModelParts(config, network, source, target, format="marian")


def opened(monkeypatch: pytest.MonkeyPatch, parts: ModelParts, folder: Path) -> heedful.Translator:
    """Return a translator of the model; single words are translated by the table, since it writes nothing itself."""
    monkeypatch.setenv("HEEDFUL_CACHE", str(folder))
    monkeypatch.setattr(
        rule, "_translated", lambda _, texts: [" ".join(MEANING.get(w, "") for w in one.split()) for one in texts]
    )
    return heedful.Translator(parts)


@pytest.mark.parametrize(("layer", "head"), [(2, 1), (1, 2), (5, 2)])
def test_it_finds_a_planted_head(monkeypatch, tmp_path, layer, head):
    translator = opened(monkeypatch, planted(layer, head), tmp_path)
    readout = translator.readout
    assert (readout.layer, readout.heads, readout.step) == (layer, (head,), "next")
    assert (readout.end, readout.marks, readout.even) == ("drop", "apart", True)
    assert str(readout) == f"layer {layer}, head {head}; read at the next step; by rule"
    assert "by rule, on lists of 200 words" in readout.chosen
    (aligned,) = translator.align([SOURCE[0]], [" ".join(MEANING[w] for w in SOURCE[0][:-1].split()) + "."])
    assert aligned.pairs == {(i, i) for i in range(6)}


def test_a_model_of_our_own_or_shallow_or_with_a_readout_keeps_it(monkeypatch, tmp_path):
    parts = planted()
    monkeypatch.setattr(rule, "DEEP", LAYERS + 1)
    assert opened(monkeypatch, parts, tmp_path).readout == USUAL
    monkeypatch.setattr(rule, "DEEP", LAYERS)
    assert opened(monkeypatch, replace(parts, format="heedful"), tmp_path).readout == USUAL
    own = Readout(1, (1,))
    assert opened(monkeypatch, replace(parts, readout=own), tmp_path).readout == own
    assert list(tmp_path.iterdir()) == []


def test_without_a_better_head_or_enough_words_the_usual_one_stays(monkeypatch, tmp_path):
    parts = planted()
    with torch.no_grad():
        parts.model.decoder[1].across.W.weight.zero_()
    assert opened(monkeypatch, parts, tmp_path).readout == USUAL
    translator = opened(monkeypatch, planted(), tmp_path)
    for none in (list, lambda texts: [""] * len(texts)):  # every word is its own translation, or has none
        monkeypatch.setattr(rule, "_translated", lambda _, texts, none=none: none(texts))
        assert rule.word_lists(translator).sources == []
    assert translator.readout == USUAL


def test_it_is_kept_in_the_cache(monkeypatch, tmp_path, caplog):
    first = opened(monkeypatch, planted(), tmp_path).readout
    monkeypatch.setattr(rule, "word_lists", None)  # not called any more
    assert opened(monkeypatch, planted(), tmp_path).readout == first
    # Other weights have another entry; a damaged one is made again.
    monkeypatch.undo()
    other = opened(monkeypatch, planted(1, 2), tmp_path).readout
    assert (other.layer, other.heads) == (1, (2,))
    for file in tmp_path.glob(f"*/{HEAD}"):
        file.write_bytes(b"damaged")
    with caplog.at_level(logging.WARNING):
        assert opened(monkeypatch, planted(), tmp_path).readout == first
    assert "is discarded and written again" in caplog.text
    calls = []
    monkeypatch.setattr(rule, "readout_by_rule", calls.append)
    assert opened(monkeypatch, planted(), tmp_path).readout == first
    assert calls == []


def test_a_cache_that_cannot_be_used_costs_only_time(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    readout = opened(monkeypatch, planted(), tmp_path / "file").readout
    assert (readout.layer, readout.heads) == (2, (1,))


def test_it_is_chosen_when_it_is_needed(monkeypatch, tmp_path):
    translator = opened(monkeypatch, planted(), tmp_path)
    translator.translate("saeh.", trace=False)
    assert list(tmp_path.iterdir()) == []
    assert translator.translate("saeh.").trace.readout.heads == (1,)
    assert list(tmp_path.iterdir()) != []


def test_it_goes_with_a_model_that_is_saved(monkeypatch, tmp_path):
    translator = opened(monkeypatch, planted(), tmp_path / "cache")
    translator.save(tmp_path / "m")
    assert heedful.load(tmp_path / "m").readout == translator.readout
    parts = replace(planted(), format="heedful")
    heedful.Translator(parts).save(tmp_path / "n")
    assert not (tmp_path / "n" / "readout.json").exists()


def test_an_ensemble_reads_each_of_its_models(monkeypatch, tmp_path):
    parts = planted()
    opened(monkeypatch, parts, tmp_path)
    monkeypatch.setattr("heedful.translator.translator.open_parts", lambda *_: parts)
    together = heedful.load(["a", "b"], "cpu")
    assert [one.heads for one in together.attention.readouts] == [(1,), (1,)]


def test_by_a_text(monkeypatch, tmp_path):
    translator = opened(monkeypatch, planted(3, 1), tmp_path)
    order = [[WORDS[(7 * i + 5 * j) % 48] for j in range(6)] for i in range(48)]
    text = [" ".join(words) + "." for words in order]

    def translate(sources, **_):
        done = [" ".join(MEANING[w] for w in one[:-1].split()) + "." for one in sources]
        return [heedful.Translation(x, y, 0.0, 1, None) for x, y in zip(sources, done, strict=True)]

    monkeypatch.setattr(translator, "translate", translate)
    translator.parts = replace(translator.parts, format="heedful")  # so that the usual read-out is the one to beat
    translator.attention = type(translator.attention)(translator.parts.model, (USUAL,))
    selection = heedful.select_readout(translator, text=text, folder=tmp_path)
    assert (selection.why_not_saved(), selection.measure) == (
        "",
        "alignment error rate against the statistical aligner's links of the model's own translations",
    )
    readout = selection.readout
    assert (readout.layer, readout.step, selection.alarms) == (3, "next", None)
    assert selection.best.held_out < 0.1
    assert Readout.build(json.loads((tmp_path / "readout.json").read_text())) == readout


def test_a_text_that_selects_nothing(monkeypatch, tmp_path):
    translator = opened(monkeypatch, planted(), tmp_path)
    with pytest.raises(ConfigError, match="cannot be combined with pairs"):
        heedful.select_readout(translator, [("a", "b")], text=["a"])
    for nothing in ([], [" "]):
        with pytest.raises(DataError, match="give pairs, or text"):
            heedful.select_readout(translator, text=nothing)
    with pytest.raises(DataError, match="expected a list of sentences"):
        heedful.select_readout(translator, text="one text")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't, he said.", ["Don't", ",", "he", "said", "."]),
        ("«a»...", ["«", "a", "»..."]),
        ("1,5 - b-c", ["1,5", "-", "b-c"]),
        ("", []),
    ],
)
def test_punctuation_apart(text, words):
    spans = [(i, i + 1) for i, c in enumerate(text) if c != " "] + [(len(text), len(text))]
    tokens = tuple(text[a:b] for a, b in spans[:-1])
    whole = Text(text, (*tokens, "</s>"), tuple(spans), merge(text, spans))
    apart = rule.words_apart(whole)
    assert [word.text for word in apart.written] == words
    assert all("".join(apart.tokens[word.first : word.last]) == word.text for word in apart.written)
    assert apart.words[-1].text == "</s>"
    np.testing.assert_array_equal(apart.ends, whole.ends)
