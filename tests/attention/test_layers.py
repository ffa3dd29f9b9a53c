"""The modules hold the weights and add no idea: each equals its pure function."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heedful.attention import SCORES, additive, attend, build_score, concat, dot, general, scaled, until
from heedful.errors import ConfigError

D, E, A = 4, 6, 5


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def build(name: str, h_width: int = E):
    torch.manual_seed(0)
    return build_score(name, D, h_width, A)


def pure(name: str, score, s: Tensor, h: Tensor) -> Tensor:
    match name:
        case "dot":
            return dot(s, h)
        case "scaled":
            return scaled(s, h)
        case "general":
            return general(s, h, score.W.weight)
        case "additive":
            return additive(s @ score.W.weight.T, h @ score.U.weight.T + score.U.bias, score.v)
        case "concat":
            # the bias as one more, constant, input: concat has none
            W = torch.cat([score.W.weight, score.U.weight, score.U.bias[:, None]], dim=1)
            return concat(s, torch.cat([h, torch.ones(*h.shape[:2], 1)], dim=-1), W, score.v)
    raise AssertionError(name)


SHIPPED = ["additive", "concat", "dot", "general", "scaled"]


@pytest.mark.parametrize("name", SHIPPED)
def test_module_equals_its_pure_function(name):
    width = D if name in ("dot", "scaled") else E
    score, s, h = build(name, width), rand(2, 3, D, seed=1), rand(2, 7, width, seed=2)
    torch.testing.assert_close(score(s, score.keys(h)), pure(name, score, s, h))


def test_every_score_has_a_name():
    assert set(SHIPPED) <= set(SCORES)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("dot", {}),
        ("scaled", {}),
        ("general", {"W.weight": (D, D)}),
        ("additive", {"W.weight": (A, D), "U.weight": (A, D), "U.bias": (A,), "v": (A,)}),
        ("concat", {"W.weight": (A, D), "U.weight": (A, D), "U.bias": (A,), "v": (A,)}),
    ],
)
def test_weights(name, shapes):
    assert {key: tuple(w.shape) for key, w in build(name, D).state_dict().items()} == shapes


@pytest.mark.parametrize("name", SCORES)
def test_padding_changes_nothing(name):
    score, s = build(name, D), rand(2, 3, D, seed=1)
    h, noise = rand(2, 4, D, seed=2), 1e3 * rand(2, 2, D, seed=3)
    lengths = torch.tensor([4, 2])
    context, _ = attend(score(s, score.keys(h)), h, until(lengths))
    wider = torch.cat([h, noise], dim=1)
    padded, weights = attend(score(s, score.keys(wider)), wider, until(lengths, 6))
    torch.testing.assert_close(padded, context)
    assert not weights[..., 4:].any()


@pytest.mark.parametrize("name", SCORES)
def test_every_weight_learns(name):
    score, s, h = build(name, D), rand(2, 3, D, seed=1), rand(2, 4, D, seed=2)
    context, _ = attend(score(s, score.keys(h)), h)
    if parameters := dict(score.named_parameters()):
        context.square().sum().backward()
        assert [key for key, w in parameters.items() if w.grad is None or not w.grad.any()] == []


@pytest.mark.parametrize("name", ["dot", "scaled"])
def test_unequal_widths_are_refused(name):
    with pytest.raises(ConfigError, match=r"4 and 6.*model\.encoder_width=0.*additive.*general"):
        build(name)


def test_unknown_score_gets_a_guess():
    with pytest.raises(ConfigError, match="'addative'.*additive, concat, .*dot, .*general, .*scaled.*mean 'additive'"):
        build("addative")
