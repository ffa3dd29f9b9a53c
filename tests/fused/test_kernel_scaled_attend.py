"""PyTorch's fused attention with weights that can be read: the output is its own, the weights are exact."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from kernel_device import kernel_device  # noqa: F401  (the fixture `device`, and Triton's interpreter)
from scaled_reference import KINDS, draw, eager, hidden_by
from torch import Tensor
from torch.nn import functional as F

from heedful.errors import ConfigError, HeedfulError, ShapeError
from heedful.fused.triton import scaled, scaled_kernels, scaled_plain
from heedful.fused.triton.scaled import ScaledWeights, scaled_attend
from heedful.fused.triton.scaled_plain import Scores
from heedful.trace.readout import weighted

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")


KEEP = torch.tensor([[False, False, True, True, True, False, True], [True, True, True, True, False, False, False]])
GIVEN: dict[str, dict[str, Any]] = {
    "nothing": {},
    "causal": {"causal": True},
    "keep": {"keep": KEEP},
    "keep, causal": {"keep": KEEP, "causal": True},  # the first two rows have nothing to look at
    "mask": {"mask": torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(1)) < 0.6},
    "added": {"mask": torch.randn(5, 7, generator=torch.Generator().manual_seed(1))},
    "nothing at all": {"mask": torch.zeros(1, 1, 5, 7, dtype=torch.bool)},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", GIVEN)
def test_weights_are_those_of_eager_attention(name: str, kind: torch.dtype) -> None:
    q, k, values = draw(2, 4, 2, 5, 7, kind=kind)
    given = dict(GIVEN[name])
    added = given["mask"] = given["mask"].to(kind) if name == "added" else given.get("mask")
    given = {key: value for key, value in given.items() if value is not None}
    output, weights = scaled_attend(q, k, values, **given)
    wanted = eager(q, k, hidden_by(given, 5, 7), added if name == "added" else None)
    assert weights.backend == "flash for the CPU"
    assert weights.shape == (2, 4, 5, 7)
    near = {"rtol": 0.0, "atol": 1e-12 if kind == torch.float64 else 3e-6}  # whatever the type of q, no more is lost
    torch.testing.assert_close(weights.block().double(), wanted, **near)
    torch.testing.assert_close(weights.mean().double(), wanted.mean(1), **near)
    exact = wanted @ values.double().repeat_interleave(2, 1)
    torch.testing.assert_close(output.double(), exact, rtol=KINDS[kind], atol=KINDS[kind])
    assert not output[(wanted.sum(-1) == 0)].any()


def test_blocks_of_rows_columns_and_heads() -> None:
    q, k, values = draw(2, 4, 2, 5, 7)
    weights = scaled_attend(q, k, values, causal=True)[1]
    every, same = weights.block(), torch.testing.assert_close
    same(weights.block(slice(1, 3), slice(None, None, 2), slice(2, None)), every[:, 2:, 1:3, ::2])
    same(weights.block([4, 0], 3, -1), every[:, 3:, [4, 0], 3:4])
    same(weights.block(torch.tensor([2]), slice(None, None, -1)), every[:, :, 2:3].flip(-1))
    assert weights.block(heads=[]).shape == (2, 0, 5, 7)
    one = scaled_attend(*draw(1, 1, 1, 1, 1))[1]  # an axis of size 1 is one place, not all
    assert one.block([0, 0], [], [0, 0, 0]).shape == (1, 3, 2, 0)
    with pytest.raises(ShapeError, match="rows 5 to 5 .* 5"):
        weights.block(5)
    with pytest.raises(ConfigError, match="heads .*torch.bool"):
        weights.block(heads=torch.ones(4, dtype=torch.bool))


def test_the_output_and_its_gradients_are_those_of_pytorch() -> None:
    given = [x.requires_grad_() for x in draw(2, 4, 2, 5, 7)]
    output, weights = scaled_attend(*given, causal=True)
    found = torch.autograd.grad(output.cos().sum(), given)
    same = F.scaled_dot_product_attention(*given, is_causal=True, enable_gqa=True)
    wanted = torch.autograd.grad(same.cos().sum(), given)
    assert torch.equal(output, same)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    assert not weights.block().requires_grad


def test_padding_and_the_past_a_few_queries_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, values = draw(2, 4, 2, 5, 7)
    whole, weights = scaled_attend(q, k, values, keep=KEEP, causal=True)
    monkeypatch.setattr(scaled, "MASKS", 30)  # two queries
    output, parts = scaled_attend(q, k, values, keep=KEEP, causal=True)
    torch.testing.assert_close(output, whole)
    torch.testing.assert_close(parts.block(), weights.block())


def test_without_a_fused_kernel_the_sums_are_found() -> None:
    q, k, values = draw(1, 2, 2, 5, 7)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        _, weights = scaled_attend(q, k, values)
    assert weights.backend == "math"
    torch.testing.assert_close(weights.block().double(), eager(q, k), rtol=0.0, atol=1e-6)


def test_summary_by_hand() -> None:
    """Scores 0 and log 3: weights 1/4 and 3/4 of the first row, 1/2 each of the second."""
    q = torch.tensor([[[[1.0], [0.0]]]])
    k = torch.tensor([[[[0.0], [math.log(3)]]]])
    weights = scaled_attend(q, k, k)[1]
    received, entropy, top = weights.summary(1)
    torch.testing.assert_close(received, torch.tensor([[[0.75, 1.25]]]))
    torch.testing.assert_close(entropy, torch.tensor([[[math.log(4) - 0.75 * math.log(3), math.log(2)]]]))
    assert top is not None
    assert top.positions.tolist() == [[[[1], [0]]]]
    torch.testing.assert_close(top.mass, torch.tensor([[[0.75, 0.5]]]))
    assert torch.equal(weights.top(1).weights, top.weights)
    assert torch.equal(weights.received(), received)
    assert torch.equal(weights.entropy(), entropy)
    with pytest.raises(ConfigError, match="count is 0, expected"):
        weights.top(0)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_weights_by_norms_are_shares_of_what_is_let_through(heads: int) -> None:
    q, k, values = draw(2, 4, 2, 5, 7)
    weights = scaled_attend(q, k, values, keep=KEEP, causal=True)[1]
    norms = torch.rand(2, heads, 7, generator=torch.Generator().manual_seed(2))
    norms[0, :, 3] = 0.0
    found = weights.by_norms(norms)
    spread = norms.repeat_interleave(4 // heads, 1)
    wanted = weighted(weights.block().numpy(), spread.numpy())
    torch.testing.assert_close(found.block(), torch.from_numpy(wanted))
    torch.testing.assert_close(found.received(), found.block().sum(2))
    with pytest.raises(ShapeError, match=r"norms .*\(2, 3, 7\).*\(B=2, H=4, S=7\)"):
        weights.by_norms(torch.ones(2, 3, 7))


def test_kernels_read_the_same_through_the_same_door(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaled_kernels, "QUERIES", 16)
    q, k, values = (x.to(device) for x in draw(2, 4, 2, 5, 7))
    plain = scaled_attend(q, k, values, keep=KEEP.to(device), how="reference")[1]
    fused = scaled_attend(q, k, values, keep=KEEP.to(device), how="kernel")[1]
    norms = torch.rand(2, 2, 7, device=device)
    for one, other in ((plain, fused), (plain.by_norms(norms), fused.by_norms(norms))):
        wanted, found = one.summary(2), other.summary(2)
        assert other.by_kernels()
        torch.testing.assert_close(found.received, wanted.received)
        torch.testing.assert_close(found.entropy, wanted.entropy)
        assert torch.equal(found.top.positions, wanted.top.positions)
        torch.testing.assert_close(found.top.weights, wanted.top.weights)
    with pytest.raises(ConfigError, match="at most 16 .* 17.*how='auto'"):
        fused.top(17)
    assert plain.top(17).positions.shape == (2, 4, 5, 17)


def test_compiled_as_one_graph() -> None:
    def layer(q: Tensor, k: Tensor, values: Tensor) -> tuple[Tensor, ScaledWeights]:
        output, weights = scaled_attend(2 * q, k, values, causal=True)
        return output + 1, weights

    given = draw(2, 4, 2, 5, 7)
    given[0].requires_grad_()
    output, weights = torch.compile(layer, fullgraph=True, backend="aot_eager")(*given)
    wanted, others = layer(*given)
    assert torch.equal(output, wanted)
    assert torch.equal(*(torch.autograd.grad(x.cos().sum(), given[0])[0] for x in (output, wanted)))
    assert weights.backend == "compiled"
    torch.testing.assert_close(weights.block(), others.block())


def test_autocast_and_inference_mode() -> None:
    q, k, values = draw(2, 4, 2, 5, 7)
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        output, weights = scaled_attend(q, k.bfloat16(), values)
        block = weights.block()
    assert output.dtype == torch.bfloat16
    assert block.dtype == torch.float32
    torch.testing.assert_close(block.double(), eager(q.bfloat16(), k.bfloat16()), rtol=0.0, atol=2e-6)


def test_what_was_written_to_is_not_read() -> None:
    q, k, values = draw(2, 4, 2, 5, 7)
    weights = scaled_attend(q, k, values)[1]
    weights.entropy()
    k[0, 0, 0, 0] = 1.0
    with pytest.raises(ConfigError, match="after the call"):
        weights.entropy()


WRONG: list[tuple[dict[str, Any], type[HeedfulError], str]] = [
    ({"q": torch.zeros(2, 5, 8)}, ShapeError, r"q .*\(2, 5, 8\)"),
    ({"q": torch.zeros(2, 3, 5, 8)}, ShapeError, "q has 3 heads.*k has 2"),
    ({"k": torch.zeros(2, 2, 7, 9)}, ShapeError, "C is 9 .*8 in q"),
    ({"k": torch.zeros(2, 2, 7, 8).half()}, ConfigError, "k is torch.float16.*q is torch.float32"),
    ({"q": torch.zeros(2, 4, 5, 8).int()}, ConfigError, "q is torch.int32.*fp32"),
    ({"values": torch.zeros(2, 2, 7, 8, device="meta")}, ConfigError, "values .*meta.*q .*cpu"),
    (
        {"keep": torch.ones(2, 8, dtype=torch.bool)},
        ShapeError,
        r"keep .*\(2, 8\) .*\(B=2, S=7\)",
    ),
    ({"mask": torch.ones(5, 8)}, ShapeError, r"mask .*\(5, 8\) .*torch.float32.*bool"),
    ({"mask": torch.ones(5, 7), "causal": True}, ConfigError, "mask.*causal"),
    ({"how": "fast"}, ConfigError, "how.*'fast'.*auto, kernel, reference"),
]


@pytest.mark.parametrize(("wrong", "kind", "words"), WRONG)
def test_what_does_not_fit_is_said(wrong: dict[str, Any], kind: type[HeedfulError], words: str) -> None:
    q, k, values = draw(2, 4, 2, 5, 7)
    with pytest.raises(kind, match=words):
        scaled_attend(**{"q": q, "k": k, "values": values, **wrong})


@pytest.mark.parametrize(("B", "T", "S"), [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_nothing_asked_or_nothing_there(B: int, T: int, S: int) -> None:
    output, weights = scaled_attend(*draw(B, 2, 2, T, S))
    assert not output.any()
    assert weights.block().shape == (B, 2, T, S)
    assert [x.shape for x in weights.summary(2)[:2]] == [(B, 2, S), (B, 2, T)]


def test_no_block_is_larger_than_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen heads of 300 × 300 are never held at once."""
    monkeypatch.setattr(scaled_plain, "ELEMENTS", 10_000)
    largest = 0
    tile = Scores.tile

    def measured(self: Scores, *places: Any) -> Tensor:
        nonlocal largest
        found = tile(self, *places)
        largest = max(largest, found.numel())
        return found

    monkeypatch.setattr(Scores, "tile", measured)
    scaled_attend(*draw(1, 16, 16, 300, 300))[1].summary(4)
    assert 0 < largest <= 10_000
