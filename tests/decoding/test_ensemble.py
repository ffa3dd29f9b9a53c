"""Ensembles: one model with itself changes nothing; different ones have the mean of their shares."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from decoding_models import CONFIGS, FEW, LENGTHS, alone, following, make, plain_beam, plain_greedy, sentences
from random_translators import random_folder, random_parts

import heedful
from heedful.decoding import Decoding, beam, greedy, sample
from heedful.decoding.ensemble import Ensemble
from heedful.errors import ConfigError, ModelError
from heedful.interop.folder import ModelParts, write_model
from heedful.models import NeedWeights, build
from heedful.observe import read_attention
from heedful.text import END, START

few = pytest.mark.parametrize("config", FEW.values(), ids=FEW)
LIMITS = [4, 8, 1, 7, 6, 8]
SOURCES = [(7, 8, END), (9, END), (4, 4, 4, END), (5, 6, END), (10, 11, END), (6, END)]
WAYS = {
    "greedy": Decoding(),
    "beam": Decoding(beam=4, n_best=3),
    "sample": Decoding(sample=True, n_best=3, temperature=1.4, top_p=0.95),
}


def decode(model, memory, how: Decoding):
    return sample(model, memory, LIMITS, how, SOURCES) if how.sample else beam(model, memory, LIMITS, how)


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("times", [1, 3])
@few
@torch.no_grad()
def test_a_model_with_itself_changes_nothing(config, how, times):
    model, (x, keep) = make(config), sentences()
    several = Ensemble([model] * times)
    one, many = model.encode(x, keep), several.encode(x, keep)
    mine, theirs = decode(model, one, how), decode(several, many, how)
    assert [[h.ids for h in each] for each in theirs] == [[h.ids for h in each] for each in mine]
    for a, b in zip((h for each in mine for h in each), (h for each in theirs for h in each), strict=True):
        assert b.log_probs == pytest.approx(a.log_probs, abs=1e-4)
        assert b.cut == a.cut
    targets = [each[0].ids for each in mine]
    for a, b in zip(read_attention(model, one, targets), read_attention(several, many, targets), strict=True):
        np.testing.assert_allclose(b.log_probs, a.log_probs, atol=1e-4)
        assert (b.weights is None) == (a.weights is None)
        if a.weights is not None:
            np.testing.assert_allclose(b.weights, a.weights, atol=1e-6)


def mixture(members, x, keep, b):
    """What an ensemble is by definition: the mean of the shares after some words."""
    each = [following(m, alone(m, x, keep, b)) for m in members]

    def after(ids: tuple[int, ...]) -> list[float]:
        return torch.tensor([a(ids) for a in each]).exp().mean(0).log().tolist()

    return after


@torch.no_grad()
def test_different_models_have_the_mean_of_their_shares():
    members = [
        make(CONFIGS["luong"]),
        make(CONFIGS["transformer"]),
        make(CONFIGS["every"]),
        make(CONFIGS["post"], seed=8),
    ]
    x, keep = sentences()
    ensemble = Ensemble(members)
    found = greedy(ensemble, ensemble.encode(x, keep), LIMITS)
    how = Decoding(beam=3, n_best=3)
    listed = beam(ensemble, ensemble.encode(x, keep), LIMITS, how)
    for b, limit in enumerate(LIMITS):
        after = mixture(members, x, keep, b)
        assert found[b].ids == plain_greedy(after, limit, how)
        wanted = [after(found[b].ids[:t])[word] for t, word in enumerate(found[b].ids)]
        assert found[b].log_probs == pytest.approx(wanted, abs=1e-4)
        assert [h.ids for h in listed[b]] == [ids for _, ids in plain_beam(after, limit, how)]
    alike = [tuple(h.ids for h in greedy(m, m.encode(x, keep), LIMITS)) for m in members]
    assert tuple(h.ids for h in found) not in alike, "one of the models decides everything"


@torch.no_grad()
def test_weights_are_the_mean_of_the_models_weights():
    rnn, wide, fixed = make(CONFIGS["bahdanau"]), make(CONFIGS["transformer"]), make(CONFIGS["every"])
    x, keep = sentences()
    targets = [(5, 6, END), (END,), (7, 4, END), (9, END), (4, 4, 4, END), (11, END)]
    ensemble = Ensemble([rnn, wide, fixed])
    found = read_attention(ensemble, ensemble.encode(x, keep), targets)
    alone_ = [read_attention(m, m.encode(x, keep), targets) for m in (rnn, wide)]
    for b, reading in enumerate(found):
        assert reading.weights.shape == (1, 1, len(targets[b]), LENGTHS[b])
        wanted = np.mean([each[b].weights.mean((0, 1)) for each in alone_], axis=0)
        np.testing.assert_allclose(reading.weights[0, 0], wanted, atol=1e-6)
    # with the same layers and heads, each is averaged with its like
    other = make(CONFIGS["transformer"], seed=9)
    ensemble = Ensemble([wide, other])
    found = read_attention(ensemble, ensemble.encode(x, keep), targets)
    for reading, a, b in zip(found, alone_[1], read_attention(other, other.encode(x, keep), targets), strict=True):
        np.testing.assert_allclose(reading.weights, (a.weights + b.weights) / 2, atol=1e-6)


@torch.no_grad()
def test_the_encoders_weights():
    x, keep = sentences()
    wide = make(CONFIGS["transformer"])
    wanted = wide.encode(x, keep, NeedWeights()).weights
    for ensemble in (Ensemble([wide, wide]), Ensemble([make(CONFIGS["luong"]), wide])):
        assert torch.allclose(ensemble.encode(x, keep, NeedWeights()).weights, wanted, atol=1e-6)
        assert ensemble.encode(x, keep).weights is None
    assert Ensemble([make(CONFIGS["luong"])]).encode(x, keep, NeedWeights()).weights is None


@torch.no_grad()
def test_rows_can_be_selected():
    x, keep = sentences()
    ensemble = Ensemble([make(c) for c in FEW.values()])
    memory, rows = ensemble.encode(x, keep), torch.tensor([4, 1, 1, 0])
    y = torch.tensor([[START, 5, 6]]).expand(len(LENGTHS), -1)
    whole = ensemble.step(y, ensemble.start(memory, 3), memory, NeedWeights())
    some = memory.select(rows)
    first = ensemble.step(y[:, :1], ensemble.start(memory, 3), memory)
    after = ensemble.step(y[:4, 1:], first.state.select(rows), some, NeedWeights())
    torch.testing.assert_close(after.hidden, whole.hidden[rows, 1:], atol=1e-4, rtol=0)
    torch.testing.assert_close(after.weights, whole.weights[rows, :, :, 1:], atol=1e-5, rtol=0)


# --- as a translator


def test_folders_are_opened_together(tmp_path: Path):
    a, b = random_folder(tmp_path / "a", "rnn"), random_folder(tmp_path / "b", "transformer", seed=2)
    together = heedful.load([a, b], "cpu")
    texts = ["a b c d", "h g. F e d", "b"]
    found = together.translate(texts, Decoding(beam=3, n_best=2))
    for each in found:
        assert each.score == pytest.approx(float(each.trace.log_probs.sum()), abs=1e-3)
        np.testing.assert_allclose(each.trace.weights.sum(-1), 1, atol=1e-5)
    scores = [heedful.load(p, "cpu").score(texts, texts) for p in (a, b)]
    mean = np.logaddexp(*(s[0].trace.log_probs for s in scores)) - np.log(2)
    np.testing.assert_allclose(together.score(texts, texts)[0].trace.log_probs, mean, atol=1e-4)
    alone_ = heedful.load(b, "cpu")
    again = heedful.load([str(b), b], "cpu")
    assert [t.text for t in again.translate(texts)] == [t.text for t in alone_.translate(texts)]
    assert again.self_attention("a b").weights.shape[:2] == (2, 2)


def test_other_vocabularies_are_refused(tmp_path: Path):
    a, b = random_folder(tmp_path / "a", "rnn"), random_folder(tmp_path / "b", "rnn", "word")
    with pytest.raises(ModelError, match="b: .*source vocabulary.*a"):
        heedful.load([a, b])
    parts, other = random_parts("rnn"), random_parts("rnn", "word")
    model = build(parts.config.model, len(parts.source), len(other.target))
    write_model(tmp_path / "c", ModelParts(parts.config, model, parts.source, other.target))
    with pytest.raises(ModelError, match="c: .*target vocabulary.*a"):
        heedful.load([a, tmp_path / "c"])


def test_no_models_are_no_ensemble(tmp_path: Path):
    with pytest.raises(ConfigError, match="one model"):
        heedful.load([])
    a = random_folder(tmp_path / "a", "rnn")
    with pytest.raises(ModelError, match="nothing.*model"):
        heedful.load([a, tmp_path / "nothing"])


def test_an_ensemble_is_not_saved(tmp_path: Path):
    a = random_folder(tmp_path / "a", "rnn")
    with pytest.raises(ConfigError, match="ensemble.*sav|sav.*ensemble"):
        heedful.load([a, a], "cpu").save(tmp_path / "out")
    assert not (tmp_path / "out").exists()
