"""One pass over the weights of scaled dot-product attention, and its top, beside float64: kernels and plain PyTorch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from kernel_device import kernel_device  # noqa: F401  (the fixture `device`)
from torch import Tensor

from heedful.fused.triton import scaled_kernels, scaled_plain
from heedful.fused.triton.scaled_plain import LOW, Scores, Summary, pack, unpack

pytestmark = [
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
    pytest.mark.usefixtures("few_programs"),
]
HALVES = (torch.float16, torch.bfloat16)


@pytest.fixture
def few_programs(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """The interpreter takes as long for a small program as for a large one; groups and keys come in several parts."""
    if device == "cpu":
        monkeypatch.setattr(scaled_kernels, "QUERIES", 64)
        monkeypatch.setattr(scaled_kernels, "CHUNK", 8)
        monkeypatch.setattr(scaled_kernels, "FETCHED", 64)


def draw(*shape: int, seed: int, kind: torch.dtype = torch.float32, device: str = "cpu") -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(kind).to(device)


def scores_of(
    B: int, H: int, G: int, T: int, S: int, C: int, device: str, kind: torch.dtype = torch.float32, **more: Any
) -> Scores:
    q, k = draw(B, H, T, C, seed=1, kind=kind, device=device), draw(B, G, S, C, seed=2, kind=kind, device=device)
    return Scores(q, k, 1 / math.sqrt(C), **more)


def exact_weights(s: Scores) -> Tensor:
    """All weights in float64, by a softmax that knows nothing of blocks.  (B, H, T, S)."""
    _, H, T, S = s.shape
    q, k = s.q.cpu().double(), s.k.cpu().double().repeat_interleave(H // s.k.shape[1], 1)
    scores = s.scale * torch.einsum("bhtc,bhsc->bhts", q, k)
    if s.bias is not None:
        scores = scores + s.bias.cpu().double()[:, :, None]
    if s.mask is not None and s.mask.dtype != torch.bool:
        scores = scores + s.mask.cpu().double()
    hidden = scores <= LOW
    if s.mask is not None and s.mask.dtype == torch.bool:
        hidden |= ~s.mask.cpu()
    if s.causal:
        hidden |= torch.arange(S) > torch.arange(T)[:, None]
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return weights.masked_fill(hidden, 0.0)


def compare(found: Summary, s: Scores, count: int) -> None:
    """What was found beside all weights at once; the top may differ only between weights that are closer than 1e-6."""
    weights = exact_weights(s)
    near = {"rtol": 1e-4, "atol": 2e-6}
    torch.testing.assert_close(found.received.cpu().double(), weights.sum(2), **near)
    torch.testing.assert_close(found.entropy.cpu().double(), torch.special.entr(weights).sum(-1), **near)
    if not count:
        assert found.top is None
        return
    assert found.top is not None
    most = min(count, s.shape[-1])
    positions, best, mass = (x.cpu() for x in found.top)
    wanted = weights.topk(most, -1).values
    torch.testing.assert_close(best[..., :most].double(), wanted, **near)
    torch.testing.assert_close(mass.double(), wanted.sum(-1), **near)
    there = positions >= 0
    at = weights.gather(-1, positions[..., :most].clamp(min=0))
    torch.testing.assert_close(torch.where(there[..., :most], at, 0.0), wanted, **near)
    assert torch.equal(there[..., :most].sum(-1), (weights > 0).sum(-1).clamp(max=most))
    assert not there[..., most:].any()
    assert not best[~there].any()
    for row in positions.reshape(-1, count)[:64]:
        named = [p for p in row.tolist() if p >= 0]
        assert len(set(named)) == len(named)


def both(s: Scores, count: int) -> None:
    lse = scaled_plain.log_sum_exp(s)
    torch.testing.assert_close(scaled_kernels.log_sum_exp(s), lse, rtol=1e-5, atol=1e-5)
    compare(scaled_plain.summary(s, lse, count), s, count)
    compare(scaled_kernels.summary(s, lse, count), s, count)


@pytest.mark.parametrize(("n", "causal"), [(1, False), (7, True), (33, False), (111, True), (257, False)])
def test_odd_sizes(device: str, n: int, causal: bool) -> None:
    both(scores_of(1, 1, 1, n, n, 8, device, causal=causal), 3)


@pytest.mark.parametrize("kind", HALVES)
@pytest.mark.parametrize(("T", "S"), [(70, 150), (150, 70)])
def test_causal_where_the_sides_differ_with_shared_keys_in_halves(
    device: str, kind: torch.dtype, T: int, S: int
) -> None:
    both(scores_of(1, 2, 1, T, S, 24, device, kind, causal=True), 2)


def test_padding_by_a_bias(device: str) -> None:
    bias = torch.zeros(2, 1, 65, device=device)
    bias[0, :, 40:] = -torch.inf
    bias[1, :, :30] = -torch.inf
    both(scores_of(2, 2, 2, 33, 65, 8, device, bias=bias), 2)
    s = scores_of(2, 1, 1, 65, 65, 8, device, bias=bias, causal=True)  # 30 rows have nothing to look at
    both(s, 2)
    found = scaled_kernels.summary(s, scaled_plain.log_sum_exp(s), 2)
    assert found.top is not None
    assert not found.entropy[1, :, :30].any()
    assert (found.top.positions[1, :, :30] == -1).all()
    assert torch.equal(s.empty()[1, 0], torch.arange(65, device=device) < 30)


@pytest.mark.parametrize(
    ("shape", "added"),
    [((2, 1, 33, 70), True), ((1, 2, 33, 70), False), ((1, 1, 1, 70), True), ((2, 2, 33, 1), False)],
)
def test_masks_of_any_shape(device: str, shape: tuple[int, ...], added: bool) -> None:
    chance = torch.rand(shape, generator=torch.Generator().manual_seed(3))
    mask = (chance < 0.7).to(device)
    mask[-1, -1, -1] = False
    if added:
        mask = torch.where(mask, 3 * chance.to(device), -torch.inf)
    s = scores_of(2, 2, 1, 33, 70, 8, device, torch.float16, mask=mask)
    both(s, 2)
    assert torch.equal(s.empty(), exact_weights(s).sum(-1).to(device) == 0)


def test_buffers_that_hold_a_part_of_the_queries(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaled_kernels, "BUFFER", 1)
    monkeypatch.setattr(scaled_kernels, "BY_QUERIES", 0)
    monkeypatch.setattr(scaled_plain, "ELEMENTS", 500)
    both(scores_of(1, 2, 1, 210, 140, 8, device, torch.float16, causal=True), 2)
    both(scores_of(1, 2, 2, 150, 140, 8, device, torch.float16), 0)


def test_more_asked_for_than_there_is(device: str) -> None:
    both(scores_of(1, 2, 2, 5, 3, 8, device), 8)


def test_what_lies_apart_or_around_is_not_read(device: str) -> None:
    """Neither what lies between the rows of a part, nor what is left over in memory."""
    plain = scores_of(1, 2, 2, 40, 70, 8, device, causal=True)
    lse = scaled_plain.log_sum_exp(plain)
    spread = []
    for x in (plain.q, plain.k):
        B, H, T, C = x.shape
        around = torch.full((B, T + 3, H + 1, C + 5), torch.nan, device=device)
        around[:, :T, :H, :C] = x.transpose(1, 2)
        spread.append(around[:, :T, :H, :C].transpose(1, 2))
    turned = [x.mT.contiguous().mT for x in (plain.q, plain.k)]
    wanted = scaled_kernels.summary(plain, lse, 2)
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.use_deterministic_algorithms(True, warn_only=True)  # so that empty memory is filled with NaN
    try:
        assert torch.empty(3, device=device).isnan().all()
        for q, k in (spread, turned):
            found = scaled_kernels.summary(Scores(q, k, plain.scale, True), lse, 2)
            for one, other in zip((*found[:2], *found.top), (*wanted[:2], *wanted.top), strict=True):
                assert torch.equal(one, other)
    finally:
        torch.use_deterministic_algorithms(False)


def test_the_same_bits_again(device: str) -> None:
    s = scores_of(1, 2, 2, 130, 200, 8, device, torch.bfloat16)
    lse = scaled_kernels.log_sum_exp(s)
    one, other = (scaled_kernels.summary(s, lse, 2) for _ in range(2))
    assert torch.equal(one.received, other.received)
    assert torch.equal(one.entropy, other.entropy)
    assert torch.equal(one.top.weights, other.top.weights)


def test_equal_weights_name_the_first_ones(device: str) -> None:
    """All keys alike: 1/70 each, of which the first are named; every key but four alike, and those larger."""
    s = scores_of(1, 1, 1, 3, 70, 8, device)
    s.k[:] = s.k[:, :, :1]
    for way in (scaled_plain, scaled_kernels):
        found = way.summary(s, scaled_plain.log_sum_exp(s), 4)
        torch.testing.assert_close(found.entropy, torch.full_like(found.entropy, math.log(70)))
        torch.testing.assert_close(found.received, torch.full_like(found.received, 3 / 70))
        assert found.top.positions[0, 0].tolist() == [[0, 1, 2, 3]] * 3
    s.q[:], s.k[:] = 1.0, 0.0
    s.k[:, :, [9, 66, 30, 64]] = 1.0
    for way in (scaled_plain, scaled_kernels):
        found = way.summary(s, scaled_plain.log_sum_exp(s), 4)
        assert found.top.positions[0, 0].tolist() == [[9, 30, 64, 66]] * 3


@pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning")
def test_what_is_not_a_number_is_not_hidden(device: str) -> None:
    s = scores_of(1, 1, 1, 4, 20, 8, device)
    s.q[0, 0, 2, 3] = torch.nan
    for way in (scaled_plain, scaled_kernels):
        lse = way.log_sum_exp(s)
        assert lse.isnan().tolist() == [[[False, False, True, False]]]
        found = way.summary(s, lse, 2)
        assert found.received.isnan().all()
        assert found.entropy.isnan().tolist() == [[[False, False, True, False]]]
        assert found.top.weights.isnan().any(-1).tolist() == [[[False, False, True, False]]]


def test_large_scores_keep_their_weights(device: str) -> None:
    """Scores of ±1e4: the entropy of a row would be lost in lse − Σ p·s, but not in −Σ p·log p."""
    s = scores_of(1, 1, 1, 5, 70, 8, device)
    s.q[:] = 0.0
    s.k[:] = 0.0
    s.q[..., 0], s.k[..., 0] = 1e4 / s.scale, 1.0
    s.k[:, :, 35:, 0] = -1.0
    for way in (scaled_plain, scaled_kernels):
        found = way.summary(s, way.log_sum_exp(s), 1)
        torch.testing.assert_close(found.entropy, torch.full_like(found.entropy, math.log(35)), rtol=2e-3, atol=0.0)
        assert not found.received[..., 35:].any()


def test_packing_keeps_the_order() -> None:
    z = torch.tensor([0.0, -1.5, 3.25, -torch.inf, 1e-40, 3.25, LOW])
    packed = pack(z, torch.arange(7))
    assert packed.sort(descending=True).indices.tolist() == [2, 5, 4, 0, 1, 6, 3]
    at, back = unpack(packed)
    assert at.tolist() == list(range(7))
    assert torch.equal(back, z)
