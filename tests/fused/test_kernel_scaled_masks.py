"""Masks of one's own: whatever numbers are added, rows sum to 1, and the weights are those of the output."""

from __future__ import annotations

import pytest
import torch
from kernel_device import kernel_device  # noqa: F401  (the fixture `device`, and Triton's interpreter)
from torch import Tensor

from heedful.errors import ConfigError, ShapeError
from heedful.fused.triton.scaled import Caught, Fused, scaled_attend

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")


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


@pytest.mark.parametrize("low", [-1e4, -1e9, torch.finfo(torch.float32).min, 1e5])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64])
def test_a_row_of_low_numbers_is_a_row_like_others(low: float, kind: torch.dtype) -> None:
    """Only -inf hides: where all is low, PyTorch's output is some mean of values, and the weights are those."""
    q, k, values = (torch.randn(2, 2, n, 8).to(kind) for n in (5, 7, 7))
    mask = torch.zeros(2, 1, 5, 7)
    mask[0, :, 1:3] = max(low, float(torch.finfo(kind).min))
    mask[0, :, 2, 4:] = -torch.inf
    mask[1, :, 0] = -torch.inf
    mask[1, :, 1, 3:] = -abs(low)
    output, weights = scaled_attend(q, k, values, mask=mask.to(kind))
    block = weights.block()
    sums = torch.ones(2, 2, 5, dtype=block.dtype)
    sums[1, :, 0] = 0.0
    torch.testing.assert_close(block.sum(-1), sums, rtol=0.0, atol=1e-5)
    assert not block[0, :, 2, 4:].any()
    near = 0.02 if kind == torch.bfloat16 else 3e-3 if abs(low) < 1e6 else 1e-5
    torch.testing.assert_close(block @ values.to(block.dtype), output.to(block.dtype), rtol=near, atol=near)
    torch.testing.assert_close(weights.received(), block.sum(2))
    torch.testing.assert_close(weights.entropy(), torch.special.entr(block).sum(-1))
    top = weights.top(7)
    torch.testing.assert_close(top.mass, sums, rtol=0.0, atol=1e-5)
    assert (top.positions[1, :, 0] == -1).all()
    torch.testing.assert_close(weights.to("cpu").block(), block)
    shares = weights.by_norms(torch.ones(2, 2, 7)).block()
    torch.testing.assert_close(shares, block, rtol=1e-4, atol=1e-5)
    assert weights.lse[0, 0, 1].item() == pytest.approx(mask[0, 0, 1, 0].item(), rel=5e-3)


def test_a_mask_has_two_axes_at_least() -> None:
    q = torch.randn(1, 2, 5, 8)
    with pytest.raises(ShapeError, match=r"mask .*\(5,\) .*torch.float32.* 2 or 3 axes"):
        scaled_attend(q, q, q, mask=torch.zeros(5))


def test_the_sums_of_a_kernel_that_anybody_put_there_are_not_taken() -> None:
    q = torch.randn(1, 2, 5, 8)
    caught = Caught()
    caught.result = Fused("fused", torch.zeros(1, 2, 5))
    assert caught.of(q) == (None, "fused")


def test_kernels_read_low_numbers_among_others_but_no_row_of_them(device: str) -> None:
    q = torch.randn(1, 2, 5, 8, device=device)
    mask = torch.zeros(5, 5, device=device).masked_fill(torch.ones(5, 5, device=device).triu(1) > 0, -1e38)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        plain, fused = (scaled_attend(q, q, q, mask=mask, how=how)[1] for how in ("reference", "kernel"))
        torch.testing.assert_close(fused.received(), plain.received())
        mask[2] = -1e38
        plain, fused = (scaled_attend(q, q, q, mask=mask, how=how)[1] for how in ("reference", "kernel"))
    torch.testing.assert_close(plain.block()[:, :, 2], torch.full((1, 2, 5), 0.2, device=device))
    with pytest.raises(ConfigError, match="mask.*row"):
        fused.received()


LATE = torch.arange(9) < torch.tensor([[9], [4]])
FAR = torch.zeros(2, 4, 6, 9)
FAR[1, :, 2:4] = -1e9
FAR[0, :, :, 5:] = -torch.inf
FAR[1, 0, 5] = -torch.inf


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"causal": True},
        {"keep": LATE},
        {"keep": LATE, "causal": True},
        {"mask": LATE[:, None, None]},
        {"mask": FAR},
    ],
)
@pytest.mark.parametrize("G", [4, 2])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_tiles_of_one_sentence_are_its_weights(
    given: dict[str, object], G: int, kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, k, values = (torch.randn(2, n, m, 8).to(kind) for n, m in ((4, 6), (G, 9), (G, 9)))
    mask = given.get("mask")
    given = {**given, "mask": mask.to(kind)} if isinstance(mask, Tensor) and mask.is_floating_point() else given
    weights = scaled_attend(q, k, values, **given)[1]  # type: ignore[arg-type]
    monkeypatch.setattr("heedful.fused.triton.scaled_plain.ELEMENTS", 60)
    for sentence in (0, 1):
        for heads in (slice(None), [3, 1]):
            wanted = weights.block(heads=heads)[sentence]
            found, at = torch.zeros_like(wanted), 0
            for rows, tile in weights.tiles(sentence, heads):
                assert rows.start == at
                assert tile.shape[2] == 9 or (given.get("causal") and tile.shape[2] == rows.stop)
                assert tile.numel() <= 60 or rows.stop - rows.start == 1
                found[:, rows, : tile.shape[2]] = tile
                at = rows.stop
            assert at == 6
            torch.testing.assert_close(found, wanted, rtol=0.0, atol=1e-6)
