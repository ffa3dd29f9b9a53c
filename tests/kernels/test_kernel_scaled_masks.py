"""Masks of one's own: whatever numbers are added, rows sum to 1, and the weights are those of the output."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heedful.kernels import scaled_attend


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(4)


def alibi(T: int) -> Tensor:
    """Less for what is further away, at another slope for each head, as ALiBi has it.  -> (1, 2, T, T)."""
    far = (torch.arange(T) - torch.arange(T)[:, None]).abs()
    return -torch.tensor([0.5, 0.3])[None, :, None, None] * far


@pytest.mark.parametrize("added", ["alibi", "drawn"])
def test_numbers_to_add_are_those_that_autocast_makes(added: str) -> None:
    """Autocast rounds them to bf16, by up to 0.12 where they are 30: so the weights have to have them."""
    q, k, values = (torch.randn(1, 2, 64, 8) for _ in range(3))
    mask = alibi(64) + 0.01 if added == "alibi" else 30 * torch.randn(1, 1, 64, 64)
    with torch.autocast("cpu", torch.bfloat16):
        output, weights = scaled_attend(q, k, values, mask=mask)
    assert weights.backend == "flash for the CPU"
    torch.testing.assert_close(weights.block().sum(-1), torch.ones(1, 2, 64), rtol=0.0, atol=1e-4)
    torch.testing.assert_close(output.float(), weights.block() @ values, rtol=0.02, atol=0.02)
