"""What words depended on: against the plain definition, computed another way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from random_translators import random_translator
from torch import nn

from heedful.config import FixedConfig, ModelConfig, RnnConfig, TransformerConfig
from heedful.decoding.ensemble import Ensemble
from heedful.errors import ConfigError, DataError
from heedful.models import Network, build
from heedful.observe.influence import agreement, gradient, leave_one_out

X, Y = (5, 7, 4, 9, 3), (6, 4, 8, 3)
MODELS: dict[str, ModelConfig] = {
    "bahdanau": RnnConfig(width=8, dropout=0.3, embedding=6),
    "lstm": RnnConfig(width=8, dropout=0.3, embedding=6, cell="lstm", order="luong", score="general", tied=False),
    "fixed": FixedConfig(width=8, dropout=0.3, embedding=6),
    "transformer": TransformerConfig(width=8, dropout=0.3, heads=2, layers=2, inner=12, tied="target"),
    "ssru": TransformerConfig(width=8, dropout=0.3, heads=2, inner=12, cell="ssru"),
    "tied": TransformerConfig(width=8, dropout=0.3, heads=2, layers=2, inner=12, tied="all"),
}


def model_of(config: ModelConfig) -> Network:
    torch.manual_seed(1)
    return build(config, 12, 12).double().eval()


def log_probs(model: Network, x: tuple[int, ...]) -> torch.Tensor:
    """The log-probability of each token of Y, given x."""
    source = torch.tensor([x])
    memory = model.encode(source, source != 0)
    hidden = model.step(torch.tensor([(2, *Y[:-1])]), model.start(memory, len(Y)), memory).hidden
    logits = model.logits(hidden)[0].clone()
    logits[:, 2] = -torch.inf
    return logits.log_softmax(-1)[torch.arange(len(Y)), torch.tensor(Y)]


@pytest.mark.parametrize("name", MODELS)
def test_a_word_left_out_is_not_there(name: str) -> None:
    model = model_of(MODELS[name])
    words = [(0, 1), (1, 3), (3, 4), (4, 5)]
    with torch.no_grad():
        whole = log_probs(model, X)
        expected = np.zeros((len(Y), len(words)))
        for w, (first, last) in enumerate(words[:-1]):
            without = log_probs(model, X[:first] + X[last:])
            expected[:, w] = (whole - without).clamp(min=0).numpy()
    found = leave_one_out(model, X, Y, words)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert expected.max() > 1e-3
    assert not found[:, -1].any()  # </s> is never left out


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_a_small_change(name: str) -> None:
    """The vector of one place times 1 + ε, its own way: by a word of its own in a larger vocabulary."""
    model = model_of(MODELS[name])
    found = gradient(model, X, Y)
    assert found.shape == (len(Y), len(X))
    table: nn.Embedding = model.source_words  # type: ignore[assignment]
    own, eps = table.weight.detach().clone(), 1e-5
    for j, word in enumerate(X):
        sides = []
        for sign in (1, -1):
            grown = torch.cat([own, own[word : word + 1] * (1 + sign * eps)])
            x = (*X[:j], len(own), *X[j + 1 :])
            with torch.no_grad():
                sides.append(_with(model, table, grown, x))
        expected = ((sides[0] - sides[1]) / (2 * eps)).abs().numpy()
        np.testing.assert_allclose(found[:, j], expected, rtol=1e-3, atol=1e-6)
    assert torch.equal(table.weight.detach(), own)
    assert isinstance(table.weight, nn.Parameter)


def _with(model: Network, table: nn.Embedding, grown: torch.Tensor, x: tuple[int, ...]) -> torch.Tensor:
    """log p of each token, where only the reading of the source has the larger table."""
    own = table.weight
    source = torch.tensor([x])
    table.weight = nn.Parameter(grown)
    memory = model.encode(source, torch.ones_like(source, dtype=torch.bool))
    table.weight = own
    hidden = model.step(torch.tensor([(2, *Y[:-1])]), model.start(memory, len(Y)), memory).hidden
    logits = model.logits(hidden)[0].clone()
    logits[:, 2] = -torch.inf
    return logits.log_softmax(-1)[torch.arange(len(Y)), torch.tensor(Y)]


def test_in_parts_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(MODELS["transformer"])
    words = [(i, i + 1) for i in range(len(X))]
    whole = gradient(model, X, Y), leave_one_out(model, X, Y, words)
    monkeypatch.setattr("heedful.observe.influence.ROWS", 7)
    parts = gradient(model, X, Y), leave_one_out(model, X, Y, words)
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_the_table_is_put_back_when_reading_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(MODELS["tied"])
    own = model.source_words.weight  # type: ignore[union-attr]

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(model, "encode", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        gradient(model, X, Y)
    assert model.source_words.weight is own  # type: ignore[union-attr]
    assert "embedding.weight" in dict(model.named_parameters())


def test_an_ensemble_is_refused() -> None:
    models = Ensemble([model_of(MODELS["fixed"])])
    with pytest.raises(ConfigError, match="ensemble"):
        gradient(models, X, Y)  # type: ignore[arg-type]


def test_agreement_by_hand() -> None:
    weights = np.array([[0.7, 0.2, 0.1], [0.1, 0.5, 0.4], [0.3, 0.3, 0.3]])
    influence = np.array([[5.0, 3.0, 1.0], [0.0, 1.0, 9.0], [1.0, 2.0, 3.0]])
    found = agreement(weights, influence)
    assert found.words == 2  # a row that is all alike says nothing
    assert found.same == 0.5
    assert found.correlation == pytest.approx((1.0 + 0.5) / 2)
    ties = agreement(np.array([[1.0, 1.0, 2.0, 3.0]]), np.array([[1.0, 2.0, 3.0, 4.0]]))
    assert ties.correlation == pytest.approx(np.corrcoef([1.5, 1.5, 3, 4], [1, 2, 3, 4])[0, 1])


def test_nothing_to_compare() -> None:
    found = agreement(np.ones((2, 3)), np.ones((2, 3)))
    assert found.words == 0
    assert np.isnan(found.correlation)


@pytest.mark.parametrize("way", ["leave-one-out", "gradient"])
def test_a_blank_side_depends_on_nothing(way: str) -> None:
    translator = random_translator("rnn")
    for source, target, side in (
        ("", "A", "source"),
        (" \t", "A", "source"),
        ("a", "", "target"),
        ("a", " ", "target"),
    ):
        with pytest.raises(DataError, match=f"^the {side} is blank"):
            translator.influence(source, target, way)
