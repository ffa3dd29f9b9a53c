"""The fused loss beside its pure reference in float64."""

from __future__ import annotations

import pytest
import torch
from kernel_device import kernel_device  # noqa: F401  (the fixture `device`)
from torch import Tensor

from heedful.errors import ShapeError
from heedful.fused.triton import token_loss as kernels
from heedful.fused.triton.token_loss import scaled_, token_losses
from heedful.training import losses as training

# The interpreter computes with NumPy, which speaks up where a GPU does not; Triton 3.6 has old ways with it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
]
# What rounding of the inputs leaves: results are compared with those of the same, rounded scores.
EXACT = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def example(N: int, V: int, kind: torch.dtype, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, words and weights, of which some are 0; both halves alike, as R-Drop has them."""
    random = torch.Generator().manual_seed(seed)
    scores = (3 * torch.randn(N, V, generator=random)).to(kind)
    words = torch.randint(0, V, (N,), generator=random)
    weights = torch.rand(N, generator=random) + 0.1
    if N % 2 == 0:
        words, weights = words[: N // 2].repeat(2), weights[: N // 2].repeat(2)
        weights[N // 4 :: N // 2] = 0
    return scores, words, weights


def wanted(scores: Tensor, words: Tensor, weights: Tensor, smoothing: float, rdrop: float) -> tuple[Tensor, ...]:
    exact = scores.cpu().double()
    losses, right = training._in_parts(exact, words.cpu(), weights.cpu().double(), smoothing, rdrop, True)
    return losses, right & (weights.cpu() > 0), exact


def compare(scores: Tensor, words: Tensor, weights: Tensor, smoothing: float, rdrop: float) -> None:
    losses, right, gradient = wanted(scores, words, weights, smoothing, rdrop)
    kind = scores.dtype
    found, hit = token_losses(scores, words, weights, smoothing, rdrop)
    torch.testing.assert_close(found.cpu().double(), losses, rtol=1e-5, atol=1e-5)
    assert hit.cpu().tolist() == right.tolist()
    assert scores.dtype == kind
    # With R-Drop they are differences of larger numbers.
    least = 5e-6
    torch.testing.assert_close(scores.cpu().double(), gradient, rtol=EXACT[kind], atol=least)
    assert scores[weights == 0].abs().sum() == 0


@pytest.mark.parametrize("rdrop", [0.0, 3.0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("N", "V"), [(2, 1), (2, 7), (10, 33), (8, 111), (6, 257)])
def test_losses_and_gradient_at_odd_sizes(device: str, N: int, V: int, smoothing: float, rdrop: float) -> None:
    compare(*(t.to(device) for t in example(N, V, torch.float32)), smoothing, rdrop)


@pytest.mark.parametrize("N", [1, 7])
def test_an_odd_number_of_rows(device: str, N: int) -> None:
    compare(*(t.to(device) for t in example(N, 33, torch.float32)), 0.1, 0.0)


@pytest.mark.parametrize("rdrop", [0.0, 3.0])
@pytest.mark.parametrize("kind", EXACT)
def test_every_type(device: str, kind: torch.dtype, rdrop: float) -> None:
    compare(*(t.to(device) for t in example(6, 111, kind)), 0.1, rdrop)


@pytest.mark.parametrize("rdrop", [0.0, 3.0])
@pytest.mark.parametrize("V", [16, 33])
def test_rows_longer_than_a_block(device: str, V: int, rdrop: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "BLOCK", 16)
    monkeypatch.setattr(kernels, "PAIR", 16)
    for seed in range(2):  # the largest score in one block or in another
        compare(*(t.to(device) for t in example(6, V, torch.float32, seed)), 0.1, rdrop)


@pytest.mark.parametrize("rdrop", [0.0, 3.0])
def test_scores_that_do_not_lie_side_by_side(device: str, rdrop: float) -> None:
    scores, words, weights = (t.to(device) for t in example(8, 33, torch.float32))
    for spread in (scores.t().contiguous().t(), torch.zeros(8, 70, device=device)[:, 3:69:2].copy_(scores)):
        assert not spread.is_contiguous()
        compare(spread, words, weights, 0.1, rdrop)
    room = torch.full((16, 33), torch.nan, device=device)
    room[::2] = scores
    compare(room[::2], words, weights, 0.1, rdrop)
    assert bool(room[1::2].isnan().all())
    compare(scores, words, torch.tensor(0.25, device=device).expand(8), 0.1, rdrop)


@pytest.mark.parametrize("rdrop", [0.0, 3.0])
def test_padding_costs_nothing_and_is_not_even_read(device: str, rdrop: float) -> None:
    scores, words, _ = (t.to(device) for t in example(4, 33, torch.float32))
    scores[:] = torch.nan
    losses, right = token_losses(scores, words, torch.zeros(4, device=device), 0.1, rdrop)
    assert losses.tolist() == [0, 0, 0, 0]
    assert not right.any()
    assert scores.abs().sum() == 0


def test_huge_scores_stay_finite(device: str) -> None:
    scores = torch.tensor([[1e4, -1e4, 0.0], [0.0, 3e38, -3e38]], device=device)
    losses, right = token_losses(scores, torch.tensor([0, 1], device=device), torch.ones(2, device=device))
    assert losses.tolist() == [0, 0]
    assert right.tolist() == [True, True]
    assert scores.abs().sum() == 0


@pytest.mark.parametrize("rdrop", [0.0, 3.0])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "no such word"])
def test_what_is_not_finite_is_not_hidden(device: str, bad: object, rdrop: float) -> None:
    scores, words, weights = (t.to(device) for t in example(4, 33, torch.float32))
    weights[:] = 1
    if isinstance(bad, float):
        scores[0, 5] = bad
    else:
        words[0] = 33
    losses, _ = token_losses(scores, words, weights, 0.1, rdrop)
    assert not losses[0].isfinite()
    assert not scores[0].isfinite().all()
    assert scores[1].isfinite().all()


def test_a_tie_is_right(device: str) -> None:
    scores = torch.tensor([[1.0, 1.0, 0.0], [1.0, 2.0, 0.0]], device=device)
    _, right = token_losses(scores, torch.tensor([1, 0], device=device), torch.ones(2, device=device))
    assert right.tolist() == [True, False]


@pytest.mark.parametrize("rdrop", [0.0, 3.0])
def test_without_learning_the_scores_stay(device: str, rdrop: float) -> None:
    scores, words, weights = (t.to(device) for t in example(8, 33, torch.float32))
    before = scores.clone()
    found = token_losses(scores, words, weights, 0.1, rdrop, False)
    assert torch.equal(scores, before)
    for one, other in zip(found, token_losses(scores, words, weights, 0.1, rdrop), strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(scores, before)


def test_the_same_bits_again(device: str) -> None:
    scores, words, weights = (t.to(device) for t in example(8, 257, torch.bfloat16))
    runs = [(copy := scores.clone(), *token_losses(copy, words, weights, 0.1, 3.0)) for _ in range(2)]
    for one, other in zip(*runs, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("n", [0, 1, 7, 257, 5000])
def test_scaled(device: str, n: int, kind: torch.dtype) -> None:
    x = torch.randn(n, generator=torch.Generator().manual_seed(1)).to(device, kind)
    for factor in (1.0, -0.5):
        number = torch.tensor(factor, device=device)
        assert torch.equal(scaled_(x.clone(), number), x * factor)
    assert torch.equal(scaled_(x.clone()[::2], number), x[::2] * factor)


def test_what_does_not_fit_is_refused(device: str) -> None:
    scores, words, weights = (t.to(device) for t in example(3, 5, torch.float32))
    with pytest.raises(ShapeError, match=r"given \(3, 5\) of torch.float64, \(3,\) and \(3,\)"):
        token_losses(scores.double(), words, weights)
    with pytest.raises(ShapeError, match="even.*R-Drop"):
        token_losses(scores, words, weights, 0.1, 1.0)
    with pytest.raises(ShapeError, match=r"\(2,\) and \(3,\)"):
        token_losses(scores, words[:2], weights)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rdrop", [0.0, 3.0])
def test_training_uses_it(device: str, kind: torch.dtype, rdrop: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: the scores keep their type, and the gradient is that of PyTorch."""
    given, words, weights = (t.to(device) for t in example(8, 33, kind))
    exact = given.double().cpu().requires_grad_()
    total, right = training.cross_entropy(exact * 1.0, words.cpu(), weights.cpu().double(), 0.1, rdrop)
    (slope,) = torch.autograd.grad(3 * total, exact)
    monkeypatch.setattr(training, "usable", lambda _: True)
    seen = []
    monkeypatch.setattr(training, "token_losses", lambda *given: seen.append(given[0].dtype) or token_losses(*given))
    leaf = given.clone().requires_grad_()
    found, hit = training.cross_entropy(leaf * 1.0, words, weights, 0.1, rdrop)
    (gradient,) = torch.autograd.grad(3 * found, leaf)
    assert seen == [kind]
    assert gradient.dtype == kind
    torch.testing.assert_close(found.cpu().double(), total, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient.cpu().double(), slope, rtol=2 * EXACT[kind], atol=2e-5)
    assert (hit.cpu() & (weights.cpu() > 0)).tolist() == (right & (weights.cpu() > 0)).tolist()
