"""A score that somebody adds to SCORES trains and decodes by its own definition, with no further edit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from conftest import copies
from small_networks import filled, padded
from small_runs import small
from torch import Tensor, nn

import heedful
from heedful.attention import SCORES, Additive, Score, attend
from heedful.config import Config, RnnConfig
from heedful.errors import ConfigError, ShapeError
from heedful.models import Memory, NeedWeights, Network

V, LENGTHS, T = 9, [4, 6, 1, 3], 5
ORDERS = [("bahdanau", True), ("luong", True), ("luong", False)]


def distance(q: Tensor, k: Tensor, w: Tensor) -> Tensor:
    """e_tj = -Σ_a w_a |q_ta - k_ja|: no dot product.  q (B, T, A), k (B, S, A), w (A,) -> (B, T, S)."""
    return -((q[:, :, None] - k[:, None]).abs() @ w)


class Distance(Score):
    """e_tj = -w · |W s_t - U h_j|."""

    def __init__(self, D: int, E: int, A: int) -> None:
        super().__init__(D, E, A)
        self.W, self.U = nn.Linear(D, A), nn.Linear(E, A)
        self.w = nn.Parameter(torch.ones(A))

    def keys(self, h: Tensor) -> Tensor:
        return self.U(h)

    def forward(self, s: Tensor, k: Tensor) -> Tensor:
        return distance(self.W(s), k, self.w)


class Twice(Additive):
    """A subclass of a score that has a fast version, and computes something else."""

    def forward(self, s: Tensor, k: Tensor) -> Tensor:
        return 2 * super().forward(s, k)


ADDED = {"manhattan": Distance, "twice": Twice}


@pytest.fixture(autouse=True)
def added() -> Iterator[None]:
    SCORES.update(ADDED)
    yield
    for name in ADDED:
        del SCORES[name]


def teacher_forced(model: Network, x: Tensor, keep: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """All tokens in one step, with gradients: logits (B, T, V) and weights (B, T, S)."""
    memory = model.encode(x, keep)
    step = model.step(y, model.start(memory, T), memory, NeedWeights())
    assert step.weights is not None
    return model.logits(step.hidden), step.weights[:, 0, 0]


def one_by_one(model: Network, x: Tensor, keep: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """One token a step, as decoding does."""
    memory = model.encode(x, keep)
    state, logits, weights = model.start(memory, T), [], []
    for t in range(T):
        step = model.step(y[:, t : t + 1], state, memory, NeedWeights())
        state = step.state
        logits.append(model.logits(step.hidden))
        weights.append(step.weights[:, 0, 0])
    return torch.cat(logits, 1), torch.cat(weights, 1)


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.parametrize(("order", "feed"), ORDERS)
def test_training_computes_what_decoding_computes(name: str, order: str, feed: bool) -> None:
    """Weights, logits and gradients."""
    config = RnnConfig(width=4, embedding=3, encoder_width=3, score_width=5, score=name, order=order, feed=feed)
    model, (x, keep, y) = filled(config, V, V), padded(LENGTHS, V, V, T)
    wish = torch.randn(len(LENGTHS), T, V, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def gradients(logits: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad((logits * wish).sum(), list(model.parameters())))

    logits, weights = teacher_forced(model, x, keep, y)
    with torch.no_grad():
        decoded, decoded_weights = one_by_one(model, x, keep, y)
    torch.testing.assert_close(weights, decoded_weights)
    torch.testing.assert_close(logits, decoded)
    torch.testing.assert_close(gradients(logits), gradients(one_by_one(model, x, keep, y)[0]))


@pytest.mark.parametrize("name", ADDED)
@torch.no_grad()
def test_weights_are_those_of_the_definition(name: str) -> None:
    config = RnnConfig(width=4, embedding=3, score=name, score_width=5)
    model, (x, keep, y) = filled(config, V, V), padded(LENGTHS, V, V, T)
    memory = model.encode(x, keep)
    state = model.start(memory, T)
    _, wanted = attend(model.score(state.top[:, None], memory.keys[0]), memory.h, keep)
    torch.testing.assert_close(model.step(y[:, :1], state, memory, NeedWeights()).weights[:, 0, 0], wanted)


@torch.no_grad()
def test_kernels_are_not_used_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where steps are taken by kernels, as on a GPU, a score without a declared fast version is not among them."""
    from heedful.models import rnn

    asked: list[Tensor] = []
    monkeypatch.setattr(rnn, "by_kernels", lambda s: True)
    monkeypatch.setattr(rnn, "attend_step", lambda q, *rest: asked.append(q) or (q, q))
    for name in ADDED:
        model = filled(RnnConfig(width=4, embedding=3, score=name), V, V)
        memory = model.encode(*padded(LENGTHS, V, V, T)[:2])
        model.query(model.start(memory, T).top, memory)
    assert not asked
    model = filled(RnnConfig(width=4, embedding=3), V, V)
    model.query(model.start(memory, T).top, Memory(memory.h, memory.keep, memory.keys))
    assert asked


def test_it_is_a_setting_as_long_as_it_is_registered() -> None:
    settings = {"model": {"family": "rnn", "score": "manhattan"}}
    assert Config.build(settings).model.score == "manhattan"
    with pytest.raises(ConfigError, match="'manhatan'.*manhattan"):
        Config.build({"model": {"family": "rnn", "score": "manhatan"}})
    SCORES.pop("manhattan")
    with pytest.raises(ConfigError, match=r"'manhattan'.*Add one .* before .* loading: heedful\.attention\.SCORES"):
        Config.build(settings)
    SCORES["manhattan"] = Distance


def test_it_is_trained_saved_and_loaded(tmp_path: Path) -> None:
    heedful.train(copies(), tmp_path / "m", settings=small(model={"score": "manhattan"}), verbose=False)
    translator = heedful.load(tmp_path / "m", "cpu")
    score = translator.parts.model.score
    assert isinstance(score, Distance)
    assert not torch.equal(score.w, torch.ones_like(score.w))
    assert translator.translate(copies()[0][0]).text


def test_a_score_of_a_wrong_shape_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Distance, "forward", lambda self, s, k: distance(self.W(s), k, self.w).transpose(1, 2))
    model = filled(RnnConfig(score="manhattan", width=4, embedding=3), V, V)
    x, keep, y = padded(LENGTHS, V, V, 1)
    memory = model.encode(x, keep)
    state = model.start(memory, 1)
    with torch.no_grad(), pytest.raises(ShapeError, match=r"Distance.*\(4, 6, 1\).*\(4, 1, 6\)"):
        model.step(y, state, memory)
