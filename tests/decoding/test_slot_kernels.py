"""Kernels that choose tokens beside PyTorch's operations, from the same logits; and whole models with all kernels."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
import torch
from decoding_models import CONFIGS, make, sentences
from kernel_device import kernel_device  # noqa: F401  (the fixture `device`)
from torch import Tensor

from heedful.decoding import Decoding, SlotDecoder, beam, slot_decoder
from heedful.decoding.slot_decoder import BeamSlots, SlotBatch, SlotEntry, TokenSlots
from heedful.fused.triton import cached_attention, next_tokens
from heedful.fused.triton.next_tokens import fits
from heedful.models import Memory, slots

pytestmark = pytest.mark.filterwarnings(
    "ignore:Conversion of an array:DeprecationWarning", "ignore:invalid value:RuntimeWarning", "ignore:All-NaN"
)
LIMITS = [4, 6, 4]
PREFIXES: list[tuple[int, ...]] = [(4, 5), (), ()]
WAYS = {
    "greedy": Decoding(),
    "long": Decoding(min_length=3),
    "n-best": Decoding(beam=3, n_best=3, penalty="gnmt", alpha=0.6, min_length=2),
    "two": Decoding(beam=2, penalty="none"),
}


class Written:
    """A model whose logits are given for each step; the parents of the hypotheses are noted."""

    nbytes = 1

    def __init__(self, logits: Sequence[Tensor]) -> None:
        self.logits, self.parents = list(logits), [torch.zeros(0)]

    def slots(self, memory: Memory, K: int, capacity: int) -> Written:
        return Written(self.logits)

    def put(self, slots: Tensor, memory: Memory) -> None:
        pass

    def step(self, y: Tensor, t: Tensor) -> Tensor:
        return self.logits.pop(0).clone()

    def advance(self, parents: Tensor | None) -> None:
        self.parents.append(torch.zeros(0) if parents is None else parents.clone())


def started(logits: Sequence[Tensor], how: Decoding, device: str) -> SlotBatch:
    B = len(LIMITS)
    memory = Memory(torch.zeros(B, 1, 1, device=device), torch.ones(B, 1, dtype=torch.bool, device=device))
    model = Written(logits)
    capacity = 6
    batch = (
        TokenSlots(model, memory, how, capacity)
        if how.beam == 1
        else BeamSlots(model, memory, how, capacity, how.n_best)
    )  # type: ignore[arg-type]
    batch.graph = None
    entries = [SlotEntry(i, *each) for i, each in enumerate(zip(LIMITS, PREFIXES, strict=True))]
    batch.enter(memory, entries)
    return batch


def tensors(batch: SlotBatch) -> dict[str, Tensor]:
    """Everything that counts while a slot is active."""
    names = ["chosen", "values"] if batch.K == 1 else ["live", "done", "at", "values", "totals", "tops"]
    all_ = {name: getattr(batch, name) for name in ["t", "active", *names]}
    if batch.K > 1:  # a continuation that is impossible may be any
        possible = all_["totals"] > -torch.inf
        all_ |= {name: all_[name].masked_fill(~possible, 0) for name in ("at", "values")}
    return all_


@pytest.mark.parametrize(
    ("way", "V", "kind"),
    [
        *(("greedy", V, kind) for V, kind in ((12, "any"), (40, "nan"))),
        ("two", 12, "any"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in product(WAYS, (12, 40), ("any", "nan"))),
    ],
)
def test_kernels_choose_what_operations_choose(
    way: str, V: int, kind: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = WAYS[way]
    monkeypatch.setattr(next_tokens, "BLOCK", 16)
    monkeypatch.setattr(next_tokens, "GROUP", 4)
    chance = torch.Generator().manual_seed(V)
    logits = [2 * torch.randn(len(LIMITS) * how.beam, V, generator=chance) for _ in range(6)]
    if kind == "nan":
        logits[2][how.beam] = torch.nan  # a row of the second sentence
    logits = [each.to(device) for each in logits]
    batches = [started(logits, how, device) for _ in range(2)]
    for _ in range(6):
        going = batches[0].active.clone()
        for batch, by_kernels in zip(batches, (False, True), strict=True):
            monkeypatch.setattr(slot_decoder, "usable", lambda x, by_kernels=by_kernels: by_kernels)
            batch._step()
        wanted, found = (tensors(batch) for batch in batches)
        left = going
        left[1] &= kind != "nan"  # what it goes on with does not matter
        for name, tensor in wanted.items():
            torch.testing.assert_close(found[name][left], tensor[left], equal_nan=True, rtol=1e-5, atol=1e-5, msg=name)
        rows = left.repeat_interleave(how.beam) & (how.beam == 1 or batches[0].live.flatten() > -torch.inf)  # type: ignore[attr-defined]
        assert torch.equal(batches[0].y[rows], batches[1].y[rows])
        if how.beam > 1:
            parents = [batch.state.parents[-1][rows] for batch in batches]  # type: ignore[attr-defined]
            assert torch.equal(*parents)
    hypotheses = []
    for batch, by_kernels in zip(batches, (False, True), strict=True):
        monkeypatch.setattr(slot_decoder, "usable", lambda x, by_kernels=by_kernels: by_kernels)
        hypotheses.append(dict(batch.leave(batch.finished())()))
    for entry, each in hypotheses[0].items():
        again = hypotheses[1][entry]
        assert [(h.ids, h.cut) for h in again] == [(h.ids, h.cut) for h in each]
        for a, b in zip(again, each, strict=True):
            assert a.log_probs == pytest.approx(b.log_probs, abs=1e-5, nan_ok=True)
    assert len(hypotheses[0]) >= len(LIMITS) - (kind == "nan")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["greedy", "n-best"])
@pytest.mark.parametrize("name", ["luong", "transformer", "post", "ssru"])
def test_models_with_all_kernels(name: str, way: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (slot_decoder, slots, cached_attention):
        monkeypatch.setattr(module, "usable", lambda x: True)
    model = make(CONFIGS[name]).to(device)
    x, keep = (side[:3].to(device) for side in sentences())
    with torch.inference_mode():
        memory = model.encode(x, keep)
        found = SlotDecoder(model, 12).decode(memory, LIMITS, WAYS[way], PREFIXES)
        wanted = beam(model, memory, LIMITS, WAYS[way], PREFIXES)
    assert [[(h.ids, h.cut) for h in each] for each in found] == [[(h.ids, h.cut) for h in each] for each in wanted]


def test_too_wide_a_beam_is_left_to_pytorch() -> None:
    assert fits(1, 500_000)
    assert fits(12, 65_000)
    assert not fits(200, 65_000)
    assert not fits(5, 8_000, n=20)
