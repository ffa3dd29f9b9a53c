"""The scores as pure functions: by hand, by gradient, and one against another."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from heedful.attention import additive, concat, dot, general, scaled
from heedful.errors import ShapeError

TANH_HALF, TANH_1, TANH_2 = 0.462117, 0.761594, 0.964028


def same(got: Tensor, wanted: list) -> None:
    torch.testing.assert_close(got, torch.tensor(wanted), atol=1e-5, rtol=0)


def rand(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def test_dot_by_hand():
    q = torch.tensor([[[1.0, 2.0], [0.0, -1.0]]])
    k = torch.tensor([[[3.0, 4.0], [5.0, 6.0], [-1.0, 0.0]]])
    # 1·3 + 2·4 = 11, 1·5 + 2·6 = 17, -1; then -4, -6, 0
    same(dot(q, k), [[[11.0, 17.0, -1.0], [-4.0, -6.0, 0.0]]])


def test_scaled_by_hand():
    q = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    k = torch.tensor([[[1.0, 1.0, 1.0, 1.0], [2.0, 0.0, 0.0, -1.0]]])
    # √4 = 2: 10 / 2, (2 - 4) / 2
    same(scaled(q, k), [[[5.0, -1.0]]])


@pytest.mark.parametrize("score", [dot, scaled])
def test_heads_do_not_meet(score):
    q, k = rand(2, 3, 4, 6), rand(2, 3, 5, 6)
    alone = torch.stack([score(q[:, head], k[:, head]) for head in range(3)], dim=1)
    torch.testing.assert_close(score(q, k), alone)
    assert torch.autograd.gradcheck(score, (q, k))


def test_general_by_hand():
    q = torch.tensor([[[2.0, 3.0]]])
    k = torch.tensor([[[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]])
    W = torch.tensor([[1.0, 0.0, 2.0], [0.0, 1.0, -1.0]])
    # W k = (7, -1) and (0, 1): 2·7 - 3·1 = 11, 3·1 = 3
    same(general(q, k, W), [[[11.0, 3.0]]])


def test_additive_by_hand():
    q = torch.tensor([[[0.5, 0.0]]])
    k = torch.tensor([[[0.5, -1.0], [-0.5, 0.5]]])
    v = torch.tensor([2.0, 3.0])
    # 2 tanh 1 + 3 tanh -1 = -tanh 1;  2 tanh 0 + 3 tanh ½
    same(additive(q, k, v), [[[-TANH_1, 3 * TANH_HALF]]])


def test_concat_by_hand():
    s = torch.tensor([[[1.0]]])
    h = torch.tensor([[[2.0, -1.0], [0.0, 1.0]]])
    W = torch.tensor([[1.0, 0.5, 1.0], [0.0, 1.0, 2.0]])
    v = torch.tensor([1.0, 5.0])
    # W (1, 2, -1) = (1, 0);  W (1, 0, 1) = (2, 2)
    same(concat(s, h, W, v), [[[TANH_1, 6 * TANH_2]]])


@pytest.mark.parametrize("score", [dot, scaled])
def test_sentences_of_a_batch_do_not_meet(score):
    q, k = rand(3, 2, 4), rand(3, 5, 4)
    alone = torch.cat([score(q[b : b + 1], k[b : b + 1]) for b in range(3)])
    torch.testing.assert_close(score(q, k), alone)


def test_concat_is_additive_with_the_weights_split():
    s, h, v = rand(2, 3, 4), rand(2, 5, 6), rand(7)
    W, U = rand(7, 4), rand(7, 6)
    torch.testing.assert_close(concat(s, h, torch.cat([W, U], dim=1), v), additive(s @ W.T, h @ U.T, v))


def test_concat_is_what_it_is_called():
    s, h, W, v = rand(2, 3, 4), rand(2, 5, 6), rand(7, 10), rand(7)
    joined = torch.cat([s[:, :, None].expand(-1, -1, 5, -1), h[:, None].expand(-1, 3, -1, -1)], dim=-1)
    torch.testing.assert_close(concat(s, h, W, v), torch.tanh(joined @ W.T) @ v)


def test_general_is_a_bilinear_form():
    q, k, W = rand(2, 3, 4), rand(2, 5, 6), rand(4, 6)
    torch.testing.assert_close(general(q, k, W), torch.einsum("bta,ad,bsd->bts", q, W, k))


@pytest.mark.parametrize(
    ("score", "inputs"),
    [
        (dot, [(2, 3, 4), (2, 5, 4)]),
        (scaled, [(2, 3, 4), (2, 5, 4)]),
        (general, [(2, 3, 4), (2, 5, 2), (4, 2)]),
        (additive, [(2, 3, 4), (2, 5, 4), (4,)]),
        (concat, [(2, 3, 2), (2, 5, 3), (4, 5), (4,)]),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_gradient(score, inputs):
    assert torch.autograd.gradcheck(score, [rand(*shape) for shape in inputs])


@pytest.mark.parametrize(
    ("score", "inputs", "facts"),
    [
        (dot, [(2, 3, 4), (2, 5, 6)], ["k", "(2, 5, 6)", "(B=2, S, A=4)", "A is 6", "4 in q"]),
        (dot, [(2, 3, 4), (1, 5, 4)], ["k", "(1, 5, 4)", "(B=2, S, A=4)", "B is 1", "2 in q"]),
        (
            dot,
            [(2, 3, 4, 5), (2, 1, 4, 5)],
            ["k", "(2, 1, 4, 5)", "(B=2, H=3, S, C=5)", "H is 1", "3 in q"],
        ),
        (scaled, [(3, 4), (2, 5, 4)], ["q", "(3, 4)", "(B, T, A)", "3 axes"]),
        (
            general,
            [(2, 3, 4), (2, 5, 6), (6, 4)],
            ["W", "(6, 4)", "(A=4, D=6)", "A is 6", "4 in q"],
        ),
        (
            additive,
            [(2, 3, 4), (2, 5, 4), (5,)],
            ["v", "(5,)", "(A=4)", "A is 5", "4 in q"],
        ),
    ],
)
def test_shapes_that_do_not_fit_are_named(score, inputs, facts):
    with pytest.raises(ShapeError, match=".*".join(map(re.escape, facts))):
        score(*[torch.zeros(shape) for shape in inputs])


@pytest.mark.parametrize("W", [(7, 9), (7, 11), (10, 7)])
def test_concat_names_weights_that_do_not_fit(W):
    # 4 + 6 columns are wanted; torch's own "mat1 and mat2" names neither W nor the widths
    with pytest.raises(ShapeError, match="^W "):
        concat(torch.zeros(2, 3, 4), torch.zeros(2, 5, 6), torch.zeros(W), torch.zeros(W[0]))
