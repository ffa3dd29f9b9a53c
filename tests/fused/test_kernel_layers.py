"""Sum, dropout and LN, and the feed-forward activation, beside PyTorch in float64."""

from __future__ import annotations

import pytest
import torch
from kernel_device import kernel_device  # noqa: F401  (the fixture `device`)
from torch import Tensor, nn

from heedful.fused.triton import sublayers
from heedful.fused.triton.sublayers import DropoutMasks, relu_dropout, residual_norm

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
NEAR = {torch.float32: {"rtol": 1e-4, "atol": 2e-5}, torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2}}
SIZES = [(1, 1), (7, 7), (3, 33), (2, 111), (33, 16), (2, 257)]


def draw(*shape: int, seed: int, kind: torch.dtype = torch.float32, device: str = "cpu") -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(kind)
    return values.to(device).requires_grad_()


def norm_of(D: int, device: str) -> nn.LayerNorm:
    LN = nn.LayerNorm(D, device=device)
    with torch.no_grad():
        LN.weight += 0.5 * draw(D, seed=3, device=device)
        LN.bias += draw(D, seed=4, device=device)
    return LN


def mask_of(rows: int, D: int, p: float, chance: DropoutMasks, device: str) -> Tensor:
    """The mask that the next sum will have, read off zeros and ones.  (rows, D)."""
    once_more = DropoutMasks(torch.device(device))
    once_more.key, once_more.masks = chance.key, chance.masks
    zero, one = torch.zeros(rows, D, device=device), torch.ones(rows, D, device=device)
    total, _ = residual_norm(zero, one, nn.LayerNorm(D, device=device), p, once_more, torch.float32)
    return total.detach()


def plain(x: Tensor, g: Tensor | None, LN: nn.LayerNorm, mask: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
    """The same in float64: all that can be learned from, x' and n."""
    leaves = [t.detach().cpu().double().requires_grad_() for t in (x, g, LN.weight, LN.bias) if t is not None]
    total = leaves[0] if g is None else leaves[0] + leaves[1] * mask.cpu().double()
    n = nn.functional.layer_norm(total, (x.shape[-1],), leaves[-2], leaves[-1], LN.eps)
    return leaves, total, n


def compare_norm(x: Tensor, g: Tensor | None, p: float, kind: torch.dtype, use: str = "both") -> None:
    device, D = x.device.type, x.shape[-1]
    LN, chance = norm_of(D, device), DropoutMasks(x.device)
    mask = mask_of(x.numel() // D, D, p, chance, device).view(x.shape)
    near = NEAR[torch.bfloat16 if torch.bfloat16 in (kind, x.dtype, x.dtype if g is None else g.dtype) else kind]
    exact, total, n = plain(x, g, LN, mask)
    pull = [draw(*x.shape, seed=seed).detach().double() for seed in (8, 9)]
    used = {"both": (1.0, 1.0), "sum": (1.0, 0.0), "norm": (0.0, 1.0)}[use]
    (used[0] * (total * pull[0]).sum() + used[1] * (n * pull[1]).sum()).backward()

    found = residual_norm(x, g, LN, p, chance, kind)
    for one, other, dtype in zip(found, (total, n), (x.dtype, kind), strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one.cpu().double(), other, **near)
    parts = [(f.double() * q.to(device)).sum() for f, q, u in zip(found, pull, used, strict=True) if u]
    sum(parts[1:], parts[0]).backward()
    leaves = [t for t in (x, g, LN.weight, LN.bias) if t is not None]
    for leaf, wanted in zip(leaves, exact, strict=True):
        assert leaf.grad is not None
        assert leaf.grad.dtype == leaf.dtype
        torch.testing.assert_close(leaf.grad.cpu().double(), wanted.grad, **near)


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize(("N", "D"), SIZES)
def test_sum_and_norm_at_odd_sizes(device: str, N: int, D: int, p: float) -> None:
    compare_norm(draw(N, D, seed=1, device=device), draw(N, D, seed=2, device=device), p, torch.float32)


@pytest.mark.parametrize("use", ["sum", "norm"])
def test_only_one_result_is_used(device: str, use: str) -> None:
    compare_norm(draw(5, 33, seed=1, device=device), draw(5, 33, seed=2, device=device), 0.3, torch.float32, use)


def test_norm_alone(device: str) -> None:
    compare_norm(draw(5, 33, seed=1, device=device), None, 0.0, torch.float32)


@pytest.mark.parametrize("x_kind", NEAR)
@pytest.mark.parametrize("g_kind", NEAR)
@pytest.mark.parametrize("kind", NEAR)
def test_every_mixture_of_types(device: str, x_kind: torch.dtype, g_kind: torch.dtype, kind: torch.dtype) -> None:
    x, g = draw(4, 64, seed=1, kind=x_kind, device=device), draw(4, 64, seed=2, kind=g_kind, device=device)
    compare_norm(x, g, 0.25, kind)


def test_several_axes_and_programs_that_work_on_many_rows(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sublayers, "NORM_ELEMENTS", 128)
    monkeypatch.setattr(sublayers, "NORM_PROGRAMS", 3)
    compare_norm(draw(3, 9, 17, seed=1, device=device), draw(3, 9, 17, seed=2, device=device), 0.3, torch.float32)


def test_what_does_not_lie_side_by_side(device: str) -> None:
    x, g = draw(9, 17, seed=1, device=device), draw(9, 17, seed=2, device=device)
    LN = norm_of(17, device)
    wanted = residual_norm(x, g, LN, 0.0, None, torch.float32)
    wanted[1].cos().sum().backward()
    spread = [t.detach().t().contiguous().t().requires_grad_() for t in (x, g)]
    found = residual_norm(*spread, LN, 0.0, None, torch.float32)
    found[1].cos().sum().backward()
    for one, other in [*zip(found, wanted, strict=True), *zip((t.grad for t in spread), (x.grad, g.grad), strict=True)]:
        torch.testing.assert_close(one, other)


def test_masks_are_fair_and_all_different(device: str) -> None:
    torch.manual_seed(5)
    chance = DropoutMasks(torch.device(device))
    masks = []
    for _ in range(3):
        masks.append(mask_of(64, 128, 0.25, chance, device) > 0)
        chance.next()
    for mask in masks:
        assert mask.float().mean().item() == pytest.approx(0.75, abs=0.02)  # 4 standard deviations
        assert mask.float().mean(0).std().item() == pytest.approx((0.1875 / 64) ** 0.5, rel=0.3)
        assert mask.float().mean(1).std().item() == pytest.approx((0.1875 / 128) ** 0.5, rel=0.3)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert (masks[one] == masks[other]).float().mean().item() == pytest.approx(0.625, abs=0.025)
    rows = masks[0].float()
    assert len({tuple(row.tolist()) for row in rows}) == 64
    torch.manual_seed(5)
    assert torch.equal(mask_of(64, 128, 0.25, DropoutMasks(torch.device(device)), device) > 0, masks[0])
    assert not torch.equal(mask_of(64, 128, 0.25, DropoutMasks(torch.device(device)), device) > 0, masks[0])


def compare_relu(N: int, D: int, p: float, kind: torch.dtype, device: str) -> None:
    x, b = draw(N, D, seed=1, kind=kind, device=device), draw(D, seed=2, device=device)
    y = relu_dropout(x, b, p, DropoutMasks(torch.device(device)))
    assert y.dtype == kind
    exact, shift = (t.detach().cpu().double().requires_grad_() for t in (x, b))
    relu = (exact + shift).relu()
    # Where something came out, it stayed; what relu left out, too, can be counted as staying.
    mask = ((y.detach().cpu() != 0) | (relu == 0)).double() / (1 - p)
    pull = draw(N, D, seed=3).detach().double()
    (relu * mask * pull).sum().backward()
    torch.testing.assert_close(y.detach().cpu().double(), relu.detach() * mask, **NEAR[kind])
    (y.double() * pull.to(device)).sum().backward()
    for leaf, wanted in ((x, exact), (b, shift)):
        assert leaf.grad is not None
        assert leaf.grad.dtype == leaf.dtype
        torch.testing.assert_close(leaf.grad.cpu().double(), wanted.grad, **NEAR[kind])


@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize(("N", "D"), SIZES)
def test_activation_at_odd_sizes(device: str, N: int, D: int, p: float) -> None:
    compare_relu(N, D, p, torch.float32, device)


def test_activation_in_bf16(device: str) -> None:
    compare_relu(8, 33, 0.3, torch.bfloat16, device)


def test_activation_in_many_blocks(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sublayers, "RELU_COLUMNS", 16)
    monkeypatch.setattr(sublayers, "RELU_ELEMENTS", 256)
    monkeypatch.setattr(sublayers, "RELU_PROGRAMS", 2)
    compare_relu(50, 50, 0.3, torch.float32, device)
    monkeypatch.setattr(sublayers, "RELU_ELEMENTS", 1024)
    ones = torch.ones(64, 128, device=device)
    y = relu_dropout(ones, torch.zeros(128, device=device), 0.25, DropoutMasks(torch.device(device)))
    assert (y > 0).float().mean().item() == pytest.approx(0.75, abs=0.02)
    assert len({tuple(block.flatten().tolist()) for block in y.split(16, dim=1)}) == 8  # each has a mask of its own


def test_what_is_not_a_number_is_not_hidden(device: str) -> None:
    x = torch.tensor([[float("nan"), 1.0, -1.0]], device=device)
    assert relu_dropout(x, torch.zeros(3, device=device), 0.0, None).isnan().tolist() == [[True, False, False]]
