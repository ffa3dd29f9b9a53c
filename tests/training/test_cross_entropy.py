"""The loss whose gradient is written by hand, beside PyTorch's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from heedful.training.losses import ROWS, cross_entropy


def plain(scores: Tensor, words: Tensor, weights: Tensor, smoothing: float, rdrop: float) -> Tensor:
    losses = F.cross_entropy(scores, words, label_smoothing=smoothing, reduction="none")
    if rdrop:
        first, second = scores.log_softmax(-1).chunk(2)
        J = ((first.exp() * (first - second)).sum(-1) + (second.exp() * (second - first)).sum(-1)) / 2
        losses = losses + rdrop / 2 * J.repeat(2)
    return (losses * weights).sum()


@pytest.mark.parametrize("rdrop", [0.0, 3.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("half", [1, ROWS // 2 + 1, 2 * ROWS])
def test_value_and_gradient(rdrop: float, smoothing: float, half: int) -> None:
    random = torch.Generator().manual_seed(0)
    scores = (3 * torch.randn(2 * half, 11, dtype=torch.float64, generator=random)).requires_grad_()
    words = torch.randint(0, 11, (half,), generator=random).repeat(2)
    weights = torch.rand(half, dtype=torch.float64, generator=random).repeat(2)
    wanted = plain(scores, words, weights, smoothing, rdrop)
    (gradient,) = torch.autograd.grad(wanted, scores)
    # A product before it, as the vocabulary projection is: the scores themselves are written over.
    found, right = cross_entropy(scores * 1.0, words, weights, smoothing, rdrop)
    (by_hand,) = torch.autograd.grad(2 * found, scores)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(by_hand, 2 * gradient)
    assert right.tolist() == (scores.argmax(-1) == words).tolist()


def test_words_of_weight_zero_cost_nothing() -> None:
    scores = torch.randn(4, 7, requires_grad=True)
    words, weights = torch.tensor([1, 0, 2, 0]), torch.tensor([0.5, 0.0, 0.5, 0.0])
    total, _ = cross_entropy(scores * 1.0, words, weights, 0.1)
    total.backward()
    assert scores.grad is not None
    assert scores.grad[1].abs().sum() == scores.grad[3].abs().sum() == 0
    assert scores.grad[0].abs().sum() > 0
    torch.testing.assert_close(total, F.cross_entropy(scores[[0, 2]], words[[0, 2]], label_smoothing=0.1))


def test_huge_scores_stay_finite() -> None:
    scores = torch.tensor([[1e4, -1e4, 0.0], [0.0, 3e38, -3e38]], requires_grad=True)
    total, _ = cross_entropy(scores * 1.0, torch.tensor([0, 1]), torch.ones(2))
    total.backward()
    assert total.item() == 0
    assert scores.grad is not None
    assert bool(scores.grad.isfinite().all())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_without_gradients_the_scores_are_left_alone(smoothing: float) -> None:
    scores = torch.randn(2 * ROWS + 3, 7)
    words = torch.arange(len(scores)) % 7
    before = scores.clone()
    found, right = cross_entropy(scores, words, torch.ones(len(scores)), smoothing)
    torch.testing.assert_close(found, F.cross_entropy(before, words, label_smoothing=smoothing, reduction="sum"))
    assert right.tolist() == (before.argmax(-1) == words).tolist()
    assert torch.equal(scores, before)
