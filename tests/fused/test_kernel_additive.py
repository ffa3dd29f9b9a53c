"""Bahdanau's attention over all T x S by kernels, beside the plain way in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from kernel_device import kernel_device  # noqa: F401  (the fixture `device`)
from torch import Tensor

from heedful import attention
from heedful.attention import additive_attend as additive_reference
from heedful.config import RnnConfig
from heedful.fused.triton import additive as fused
from heedful.fused.triton.additive import additive_attend, kernel_attend
from heedful.models import NeedWeights, build, rnn

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
NAN = float("nan")
Way = Callable[..., tuple[Tensor, Tensor | None]]
NAMES = ("context", "weights", "dq", "dk", "dv", "dvalues")
# (B, T, S, A, D): each of 1, 7, 33, 111 and 257 stands once at every axis.
SIZES = [
    (1, 1, 1, 1, 1),
    (2, 7, 33, 111, 3),
    (1, 33, 7, 257, 4),
    (1, 2, 257, 7, 2),
    (1, 111, 5, 33, 7),
    (1, 2, 111, 3, 33),
]


def given(B: int, T: int, S: int, A: int, D: int, scale: float = 1.0, seed: int = 0) -> list[Tensor]:
    """Return fresh q, k, v and values."""
    draw = torch.Generator().manual_seed(seed)
    q, k, values = (torch.randn(B, n, width, generator=draw) for n, width in ((T, A), (S, A), (S, D)))
    return [scale * q, scale * k, torch.randn(A, generator=draw) / math.sqrt(A), values]


def mask(*shape: int, seed: int = 5) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) > 0.3


def learn(
    way: Way, tensors: list[Tensor], keep: Tensor | None, pulls: list[Tensor], autocast: bool = False
) -> list[Tensor]:
    """Return context and weights, and the gradients of all four that come from both."""
    leaves = [x.detach().requires_grad_() for x in tensors]
    with torch.autocast(leaves[0].device.type, torch.bfloat16, enabled=autocast):
        found = way(*leaves, keep)
    total = sum((x.double() * pull.to(x.device)).sum() for x, pull in zip(found, pulls, strict=True))
    return [*(x.detach() for x in found), *torch.autograd.grad(total, leaves)]


def pulls_for(tensors: list[Tensor], seed: int = 9) -> list[Tensor]:
    q, k, _, values = tensors
    draw = torch.Generator().manual_seed(seed)
    shapes = ((*q.shape[:2], values.shape[2]), (*q.shape[:2], k.shape[1]))
    return [torch.randn(*shape, generator=draw).double() for shape in shapes]


def compare(tensors: list[Tensor], keep: Tensor | None, device: str, share: float = 3e-6) -> list[Tensor]:
    """Hold the kernels to the definition in float64: errors are a share of the largest value of each result."""
    pulls = pulls_for(tensors)
    wanted = learn(additive_reference, [x.double() for x in tensors], keep, pulls)
    found = learn(kernel_attend, [x.to(device) for x in tensors], None if keep is None else keep.to(device), pulls)
    for name, one, other in zip(NAMES, found, wanted, strict=True):
        error = (one.cpu().double() - other).abs().max().item() if one.numel() else 0.0
        assert error <= share * max(1.0, other.abs().max().item() if one.numel() else 0.0), f"{name}: {error:.1e}"
    return found


@pytest.fixture
def poisoned() -> Iterator[None]:
    """All memory that is asked for holds NaN."""
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.utils.deterministic.fill_uninitialized_memory = before[1]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_odd_sizes(device: str, size: tuple[int, ...], poisoned: None) -> None:
    B, _, S, _, _ = size
    compare(given(*size), mask(B, S), device)


def test_worked_by_hand(device: str) -> None:
    """tanh(0 + 0) = 0 and tanh(0.25 + k) = 1/2; with v = 2 ln 3 the scores are 0 and ln 3: weights 1/4 and 3/4."""
    q = torch.tensor([[[0.25]]], device=device)
    k = torch.tensor([[[-0.25], [math.atanh(0.5) - 0.25]]], device=device)
    values = torch.tensor([[[4.0], [8.0]]], device=device)
    context, weights = kernel_attend(q, k, torch.tensor([2 * math.log(3)], device=device), values)
    assert weights.flatten().tolist() == pytest.approx([0.25, 0.75], abs=1e-6)
    assert context.item() == pytest.approx(7.0, abs=1e-5)


def test_the_scores_themselves(device: str) -> None:
    q, k, v, _ = given(2, 9, 70, 130, 1, scale=2.0)
    found = fused._scores(q.to(device), k.to(device), v.to(device), None)
    assert found.shape[0] > 1  # so few rows that the sum over a is cut into parts
    exact = attention.additive(q.double(), k.double(), v.double())
    error = (found.sum(0).cpu().double() - exact).abs().max().item()
    assert error < 3e-7 * v.abs().sum().item()


@pytest.mark.parametrize("kind", ["none", "one for all rows", "one for all sentences", "each its own"])
def test_masks(device: str, kind: str) -> None:
    B, T, S = 2, 5, 9
    keeps = {"one for all rows": mask(B, 1, S), "one for all sentences": mask(1, T, S), "each its own": mask(B, T, S)}
    compare(given(B, T, S, 6, 3), keeps.get(kind), device)


def test_with_nothing_to_look_at_there_are_zeros(device: str, poisoned: None) -> None:
    tensors = given(3, 4, 6, 5, 2)
    keep = mask(3, 4, 6)
    keep[0], keep[1, 2] = False, False
    context, weights, dq, dk, _, dvalues = compare(tensors, keep, device)
    for x in (context[0], weights[0], dq[0], dk[0], dvalues[0], context[1, 2], weights[1, 2], dq[1, 2]):
        assert not x.any()


def test_what_nobody_sees_may_hold_anything(device: str, poisoned: None) -> None:
    tensors, keep = given(2, 5, 9, 6, 3), mask(2, 9)
    pulls, here = pulls_for(tensors), [x.to(device) for x in tensors]
    wanted = learn(kernel_attend, here, keep.to(device), pulls)
    for x in (here[1], here[3]):
        x[~keep.to(device)] = NAN
    for way in (kernel_attend, additive_reference):
        for name, one, other in zip(NAMES, learn(way, here, keep.to(device), pulls), wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6, msg=lambda text, name=name: name + text)


def test_what_is_not_a_number_is_not_hidden(device: str) -> None:
    q, k, v, values = (x.to(device) for x in given(1, 20, 3, 4, 2))
    q[0, 17, 1] = NAN
    context, weights = kernel_attend(q, k, v, values)
    assert context.isnan().any(-1).tolist() == weights.isnan().any(-1).tolist() == [[i == 17 for i in range(20)]]


@pytest.mark.parametrize("scale", [30.0, 1e4])
def test_large_numbers_are_exact(device: str, scale: float) -> None:
    compare(given(1, 5, 70, 6, 2, scale), mask(1, 70), device)


def test_large_numbers_that_cancel(device: str) -> None:
    """±1e4 on one side and ∓1e4 on the other: what decides is what is left."""
    q, k, v, values = given(1, 6, 9, 12, 2)
    large = 1e4 * torch.sign(torch.randn(12, generator=torch.Generator().manual_seed(3)))
    compare([q + large, k - large, v, values], None, device)
    compare([q + 1e4, k, v, values], None, device)
    compare([q - 1e4, k + 1e4, v, values], None, device)


def test_one_row_that_is_large_among_many(device: str) -> None:
    """Some blocks go the slow way, others do not; in one block only some rows ask for it."""
    q, k, v, values = given(1, 34, 70, 66, 2)
    q[0, 33] *= 100
    k[0, 40, 65] = -1e4
    compare([q, k, v, values], None, device)


@pytest.mark.parametrize("q", [17.29, 17.31, 25.0, 60.0, 1e4, float("inf")])
def test_where_the_ways_part(device: str, q: float) -> None:
    """Around the limits of the fast way, tanh(q + k) is right to rounding for every k."""
    limit = q if math.isfinite(q) else 1e30
    near = torch.tensor([-1e30, -1e4, -44.1, -17.3, -7.61, -7.59, 0.0, 7.6, 17.29, 17.31, 44.0, 1e4])
    k = torch.cat([near, torch.linspace(-12, 12, 49) - limit, -near])[None, :, None]
    for one, other in ((torch.full((1, 1, 1), q), k), (torch.full((1, 1, 1), -q), -k)):
        found = fused._scores(one.to(device), other.to(device), torch.ones(1, device=device), None)[0, 0, 0].cpu()
        exact = torch.tanh(one[0, 0, 0].double() + other[0, :, 0].double())
        assert (found.double() - exact).abs().max() < 3e-7


def test_parts_are_added(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [x.to(device) for x in given(1, 3, 5, 80, 2)]
    pulls = pulls_for(tensors)
    found = learn(kernel_attend, tensors, None, pulls)
    monkeypatch.setattr(fused, "PROGRAMS", 1)
    for one, other in zip(learn(kernel_attend, tensors, None, pulls), found, strict=True):
        torch.testing.assert_close(one, other)


def test_what_does_not_lie_side_by_side(device: str) -> None:
    tensors, keep = [x.to(device) for x in given(2, 5, 9, 6, 3)], mask(2, 5, 9).to(device)
    pulls = pulls_for(tensors)
    wanted = learn(kernel_attend, tensors, keep, pulls)
    q, k, v, values = tensors
    room = torch.full((12,), NAN, device=device)
    room[::2] = v
    spread = [q.transpose(0, 1).contiguous().transpose(0, 1), k.mT.contiguous().mT, room[::2], values.flip(0).flip(0)]
    turned = keep.mT.contiguous().mT
    assert not any(x.is_contiguous() for x in (*spread[:3], turned))
    for one, other in zip(learn(kernel_attend, spread, turned, pulls), wanted, strict=True):
        assert torch.equal(one, other)


def test_the_same_bits_again(device: str) -> None:
    tensors, keep = [x.to(device) for x in given(2, 5, 9, 70, 3)], mask(2, 9).to(device)
    runs = [learn(kernel_attend, tensors, keep, pulls_for(tensors)) for _ in range(2)]
    for one, other in zip(*runs, strict=True):
        assert torch.equal(one, other)


def test_nothing_to_add_up(device: str) -> None:
    for size in ((0, 2, 3, 4, 5), (2, 0, 3, 4, 5), (2, 3, 0, 4, 5), (2, 3, 4, 0, 5)):
        found = compare(given(*size), torch.ones(size[0], size[2], dtype=torch.bool), device)
        assert found[0].shape == (size[0], size[1], 5)


@pytest.mark.parametrize(
    ("kind", "values_kind"),
    [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.bfloat16), (torch.float16, torch.float32)],
)
def test_types(device: str, kind: torch.dtype, values_kind: torch.dtype) -> None:
    """Rounded inputs, exact arithmetic: weights as exact as fp32, the context and gradients rounded to their type."""
    q, k, v, values = (x.to(device) for x in given(2, 3, 9, 20, 4))
    tensors = [q.to(kind), k.to(kind), v, values.to(values_kind)]
    pulls, keep = pulls_for(tensors), mask(2, 9)
    wanted = learn(additive_reference, [x.cpu().double() for x in tensors], keep, pulls)
    found = learn(kernel_attend, tensors, keep.to(device), pulls)
    assert [x.dtype for x in found] == [values_kind, torch.float32, kind, kind, torch.float32, values_kind]
    loose = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
    for name, one, other in zip(NAMES, found, wanted, strict=True):
        near = 3e-6 if name == "weights" else max(loose[one.dtype], loose[values_kind])
        assert (one.cpu().double() - other).abs().max() <= near * max(1.0, other.abs().max().item()), name


@pytest.mark.parametrize("how", ["kernel", "reference"])
def test_autocast_changes_nothing(device: str, how: str) -> None:
    tensors = [x.to(device) for x in given(2, 3, 9, 20, 4)]
    tensors[0], tensors[3] = tensors[0].bfloat16(), tensors[3].bfloat16()  # as they come out of a product

    way, pulls = partial(additive_attend, how=how), pulls_for(tensors)
    wanted, found = (learn(way, tensors, None, pulls, autocast) for autocast in (False, True))
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    assert (found[0].dtype, found[1].dtype) == (torch.bfloat16, torch.float32)


@pytest.mark.slow
def test_it_keeps_the_rules_of_an_operation(device: str) -> None:
    """Schema, shapes without data, and gradients, as PyTorch checks them."""
    q, k, v, _ = (x.to(device).requires_grad_() for x in given(1, 2, 3, 4, 1))
    for keep in (None, torch.ones(1, 2, 3, dtype=torch.bool, device=device)):
        torch.library.opcheck(torch.ops.heedful.additive_weights.default, (q, k, v, keep))


@pytest.mark.gpu
def test_a_real_size(device: str) -> None:
    """On a GPU: the largest size of the benchmark, against float64 for two sentences, and what memory it took."""
    tensors = [x.to(device) for x in given(16, 512, 512, 512, 512)]
    keep = (torch.arange(512) < torch.arange(200, 520, 20)[:, None]).to(device)
    pulls = pulls_for(tensors)
    wanted = learn(kernel_attend, tensors, keep, pulls)
    pulls = [pull.float().to(device) for pull in pulls]
    leaves = [x.requires_grad_() for x in tensors]
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = kernel_attend(*leaves, keep)
    gradients = torch.autograd.grad(found, leaves, pulls)
    extra = torch.cuda.max_memory_allocated() - before
    extra -= sum(x.numel() * x.element_size() for x in (*found, *gradients))
    assert extra < 256 * 2**20
    for name, one, other in zip(NAMES, (*found, *gradients), wanted, strict=True):
        assert torch.equal(one, other), name
    for b in (0, 15):
        part = [x[b : b + 1].detach().double() if x.dim() > 1 else x.detach().double() for x in tensors]
        exact = learn(additive_reference, part, keep[b : b + 1], [pull[b : b + 1].double() for pull in pulls])
        for name, one, other in zip(NAMES, (*found, *gradients), exact, strict=True):
            if name != "dv":
                assert (one[b].double() - other[0]).abs().max() < 1e-5 * max(1.0, other.abs().max().item()), name


@pytest.mark.parametrize("tied", [False, True])
def test_luong_without_feeding_queries_at_once(device: str, tied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    config = RnnConfig(order="luong", feed=False, score="additive", width=6, embedding=4, dropout=0.0, tied=tied)
    model = build(config, 13, 13).to(device).train()
    x, y = torch.randint(1, 13, (2, 5), device=device), torch.randint(1, 13, (2, 4), device=device)
    keep = torch.tensor([[True] * 5, [True, True, True, False, False]], device=device)
    parameters = dict(model.named_parameters())
    results = []
    for at_once in (False, True):
        monkeypatch.setattr(rnn, "usable", lambda _, at_once=at_once: at_once)
        memory = model.encode(x, keep)
        step = model.step(y, model.start(memory, 0), memory, NeedWeights())
        total = model.logits(step.hidden).square().sum() + step.weights.square().sum()
        results.append([step.weights.detach(), step.hidden.detach(), *torch.autograd.grad(total, parameters.values())])
    for name, one, other in zip(("weights", "hidden", *parameters), *results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: name + text)
    exact = model.double()  # which kernels do not take
    memory = exact.encode(x, keep)
    assert exact.step(y, exact.start(memory, 0), memory).hidden.dtype == torch.float64
