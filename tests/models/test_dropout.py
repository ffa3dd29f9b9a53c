"""Dropout: the share that is left out, the mean that stays, the same from the same seed, and the gradient."""

from __future__ import annotations

import pytest
import torch

from heedful.models.layers import dropout


@pytest.mark.parametrize("p", [0.001, 0.1, 0.3, 0.5, 0.95])
def test_the_share_that_is_left_out(p: float) -> None:
    torch.manual_seed(0)
    n = 400_000
    found = dropout(torch.full((n,), 2.0), p)
    assert found.unique().tolist() == [0.0, pytest.approx(2 / (1 - p), rel=1e-3)]
    assert (found == 0).sum().item() == pytest.approx(n * p, abs=5 * (n * p * (1 - p)) ** 0.5)


def test_all_16_bits_are_random() -> None:
    """Neighbours, which come from one drawn number, are left out independently of each other."""
    torch.manual_seed(0)
    gone = (dropout(torch.ones(100_000, 4), 0.5) == 0).double()
    assert (gone.T.cov() - 0.25 * torch.eye(4)).abs().max() < 0.005
    assert (gone.mean(0) - 0.5).abs().max() < 0.01


def test_nothing_is_left_out() -> None:
    x = torch.randn(5, 3)
    assert torch.equal(dropout(x, 0.0), x)


def test_a_share_too_small_to_meet_is_not_an_error() -> None:
    assert dropout(torch.ones(7), 1e-9).shape == (7,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1,), (3, 5), (2, 3, 7), (0, 4)])
def test_any_shape_and_type(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.ones(shape, dtype=dtype)
    assert dropout(x, 0.2).shape == x.shape
    assert dropout(x, 0.2).dtype == dtype
    assert dropout(x.transpose(0, -1), 0.2).shape == x.transpose(0, -1).shape


def test_it_follows_from_the_seed() -> None:
    x, found = torch.ones(1000), []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        found.append(dropout(x, 0.3))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_its_gradient() -> None:
    torch.manual_seed(1)
    x = torch.randn(50, requires_grad=True)
    found = dropout(x, 0.4)
    (gradient,) = torch.autograd.grad(found.sum(), x)
    torch.testing.assert_close(gradient * x, found)
