"""Luong's local attention: windows around a position, by hand, and what padding and sentences of other lengths do."""

from __future__ import annotations

import math

import pytest
import torch

from heedful.attention import PredictedPosition, attend, gaussian, local_attend, until, window
from heedful.errors import ShapeError

LN_3 = math.log(3)


def test_a_window_by_hand():
    found = window(torch.tensor([[0.0, 2.5, 4.0, 9.0]]), 5, 1.5)
    assert found[0].int().tolist() == [[1, 1, 0, 0, 0], [0, 1, 1, 1, 1], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]


def test_a_gaussian_by_hand():
    # σ = 1: exp(-0), exp(-1/2), exp(-2)
    found = gaussian(torch.tensor([[1.0]]), 4, 2)
    torch.testing.assert_close(found, torch.tensor([[[0.606531, 1.0, 0.606531, 0.135335]]]), atol=1e-6, rtol=0)


def test_monotonic_by_hand():
    scores = torch.tensor([[[0.0, LN_3, 50.0], [0.0, LN_3, 0.0]]])
    values = torch.tensor([[[4.0], [8.0], [100.0]]])
    context, weights = local_attend(scores, values, torch.tensor([[0, 1]]), 1)
    # 1 : 3 inside, the third outside;  1 : 3 : 1
    torch.testing.assert_close(weights, torch.tensor([[[0.25, 0.75, 0.0], [0.2, 0.6, 0.2]]]), atol=1e-6, rtol=0)
    torch.testing.assert_close(context, torch.tensor([[[7.0], [25.6]]]), atol=1e-5, rtol=0)


def test_predictive_by_hand():
    scores = torch.tensor([[[0.0, 0.0, 0.0, 9.0]]])
    values = torch.tensor([[[3.0], [3.0], [6.0], [100.0]]])
    context, weights = local_attend(scores, values, torch.tensor([[1.0]]), 1, peaked=True)
    # a third each inside, times exp(-2), 1, exp(-2) with σ = 1/2; not normalised again
    wanted = torch.tensor([[[0.045112, 0.333333, 0.045112, 0.0]]])
    torch.testing.assert_close(weights, wanted, atol=1e-6, rtol=0)
    torch.testing.assert_close(context, torch.tensor([[[1.406005]]]), atol=1e-5, rtol=0)


def test_padding_is_never_attended_and_an_empty_window_gives_zeros():
    scores = torch.zeros(1, 3, 5, requires_grad=True)
    values = torch.ones(1, 5, 2)
    context, weights = local_attend(scores, values, torch.tensor([[1, 3, 4]]), 1, until(torch.tensor([3]), 5))
    assert weights[0].tolist() == pytest.approx(torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0, 0], [0, 0, 1, 0, 0], [0] * 5]))
    assert context[0, 2].tolist() == [0.0, 0.0]
    context.sum().backward()
    assert bool(scores.grad.isfinite().all())


def test_a_window_over_everything_is_global_attention():
    generator = torch.Generator().manual_seed(1)
    scores, values = (torch.randn(2, n, 6, generator=generator) for n in (3, 6))
    keep, p = until(torch.tensor([6, 2])), torch.tensor([[0, 3, 5], [0, 1, 2]])
    torch.testing.assert_close(local_attend(scores, values, p, 6, keep), attend(scores, values, keep))


def test_the_predicted_position_is_a_share_of_each_length():
    place = PredictedPosition(2)
    with torch.no_grad():
        place.W.weight.copy_(torch.eye(2))
        place.v.copy_(torch.tensor([1.0, 0.0]))
    s = torch.tensor([[[0.0, 5.0], [math.atanh(0.5), 0.0]]]).expand(2, 2, 2)
    # S σ(0) and S σ(0.5)
    found = place(s, torch.tensor([10, 4]))
    torch.testing.assert_close(found, torch.tensor([[5.0, 6.224593], [2.0, 2.489837]]), atol=1e-5, rtol=0)


def test_a_gradient_reaches_the_position():
    p = torch.tensor([[1.3]], requires_grad=True, dtype=torch.float64)
    scores, values = torch.randn(1, 1, 5, dtype=torch.float64), torch.randn(1, 5, 2, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda p: local_attend(scores, values, p, 2, peaked=True), [p])


def test_positions_of_another_shape_are_refused():
    with pytest.raises(ShapeError, match=r"p has shape \(2, 4\)"):
        local_attend(torch.zeros(2, 3, 4), torch.zeros(2, 4, 1), torch.zeros(2, 4), 1)
