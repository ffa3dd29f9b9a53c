"""The recurrence with attention inside by kernels, beside the pure one in float64."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from kernel_device import kernel_device  # noqa: F401  (the fixture `device`)
from torch import Tensor

from heedful.attention import until
from heedful.fused import unrolled
from heedful.fused.cpu import recurrence
from heedful.fused.triton import recurrent_attention
from heedful.fused.triton.launch import Kernel
from heedful.fused.unrolled import DecoderOutput, DecoderSpec, unrolled_decoder
from heedful.models.rnn import kind_of

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
SIZES = {"B": 2, "S": 5, "T": 2, "D": 6, "E": 4, "A": 7, "K": 3}
NEAR = {torch.float64: {"rtol": 1e-9, "atol": 1e-11}, torch.float32: {"rtol": 1e-3, "atol": 2e-5}}
KINDS = {
    f"{query}-{'additive' if additive else 'dot'}": (query, additive)
    for query in ("before", "after")
    for additive in (True, False)
}
VIEWS = {"view", "_unsafe_view", "unbind", "select", "slice", "transpose", "t", "permute", "expand", "detach", "alias"}
VIEWS |= {"unsqueeze", "split_with_sizes"}
Tensors = dict[str, Tensor]


def given(spec: DecoderSpec, additive: bool, device: str, sizes: dict[str, int] | None = None) -> Tensors:
    """Random tensors for `unrolled_decoder` in float64, with input feeding; sentences of several lengths."""
    B, S, T, D, E, A, K = (SIZES | (sizes or {})).values()
    A = A if additive else D
    G = kind_of(spec.cell).gates * D
    shapes = {"x": (T, B, K), "keys": (B, S, A), "values": (B, S, E)}
    for layer in range(spec.layers):
        shapes |= {f"W{layer}": (G, D if layer else K), f"U{layer}": (G, D), f"b_W{layer}": (G,), f"b_U{layer}": (G,)}
        shapes |= {f"{side}{layer}": (B, D) for side in spec.states}
    shapes |= {"W_q": (A, D), "v": (A,)} if additive else {}
    shapes |= {"W_fed": (G, D if spec.query == "after" else E)}
    shapes |= {"W_a": (D, D + E), "b_a": (D,), "a": (B, D)} if spec.query == "after" else {}
    generator = torch.Generator().manual_seed(0)
    wide = {name: shape[-1] ** -0.5 if name[0] in "WUv" else 1.0 for name, shape in shapes.items()}
    found = {n: wide[n] * torch.randn(s, generator=generator, dtype=torch.float64) for n, s in shapes.items()}
    lengths = (3 * torch.arange(B) + 2) % S + 1  # 3, 1, …
    return {n: t.to(device) for n, t in found.items()} | {"keep": until(lengths, S).to(device)}


def outputs(found: DecoderOutput) -> list[Tensor]:
    return [t for t in (found.s, found.c, found.weights, found.a, *chain.from_iterable(found.last)) if t is not None]


def run(
    spec: DecoderSpec, tensors: Tensors, fused: bool, kind: torch.dtype = torch.float64, back: bool | None = None
) -> dict[str, Tensor]:
    """All outputs of `unrolled_decoder` and gradients, by name; `back`: whether kernels take the backward pass."""
    leaves = {n: t.to(kind).requires_grad_() if t.is_floating_point() else t for n, t in tensors.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unrolled, "steppable", lambda _: fused)
        found = outputs(unrolled_decoder(spec, leaves))
        generator = torch.Generator().manual_seed(1)
        wishes = [torch.randn(f.shape, generator=generator, dtype=torch.float64).to(f) for f in found]
        names = [name for name, leaf in leaves.items() if leaf.requires_grad]
        if back is not None:
            patch.setattr(unrolled, "steppable", lambda _: back)
        gradients = torch.autograd.grad(found, [leaves[name] for name in names], wishes)
    results = {f"output {i}": f.detach() for i, f in enumerate(found)}
    return results | {f"gradient of {name}": g for name, g in zip(names, gradients, strict=True)}


def compare(found: dict[str, Tensor], wanted: dict[str, Tensor], near: dict[str, float]) -> None:
    assert found.keys() == wanted.keys()
    for name, tensor in found.items():
        assert tensor.shape == wanted[name].shape, name
        torch.testing.assert_close(tensor.double(), wanted[name], **near, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("kind", NEAR, ids=str)
@pytest.mark.parametrize("way", KINDS)
@pytest.mark.parametrize("cell", recurrence.LAYERS)
def test_it_is_the_pure_recurrence(device: str, cell: str, way: str, kind: torch.dtype) -> None:
    """In float64 to the last digits, so that nothing can hide behind rounding, and in fp32."""
    query, additive = KINDS[way]
    spec = DecoderSpec(cell, 2 if kind == torch.float64 else 1, query, 1.0 if additive else 0.7)
    tensors = given(spec, additive, device)
    compare(run(spec, tensors, True, kind), run(spec, tensors, False), NEAR[kind])


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("way", KINDS)
@pytest.mark.parametrize("cell", recurrence.LAYERS)
def test_either_way_takes_what_the_other_left(device: str, cell: str, way: str, fused: bool) -> None:
    query, additive = KINDS[way]
    spec = DecoderSpec(cell, 1, query)
    tensors = given(spec, additive, device)
    found = run(spec, tensors, fused, back=not fused)
    compare(found, run(spec, tensors, False), NEAR[torch.float64])


def test_sentences_too_long_for_a_kernel_are_asked_about_otherwise(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = DecoderSpec("lstm", 1, "before")
    tensors = given(spec, True, device)
    assert joined(spec, tensors)
    monkeypatch.setattr(recurrent_attention, "LONGEST", SIZES["S"] - 1)
    assert not joined(spec, tensors)
    compare(run(spec, tensors, True), run(spec, tensors, False), NEAR[torch.float64])


def joined(spec: DecoderSpec, tensors: Tensors) -> bool:
    """Whether kernels take the steps, and one product reads a state."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unrolled, "steppable", lambda _: True)
        return unrolled.joinable(spec, tensors)


@pytest.mark.parametrize("size", [1, 4, 7, 12, 33])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_odd_sizes(device: str, cell: str, size: int) -> None:
    """And multiples of 4, in which widths are then counted."""
    spec = DecoderSpec(cell, 1, "before")
    tensors = given(spec, True, device, {"S": size, "D": size, "E": size, "A": size})
    compare(run(spec, tensors, True), run(spec, tensors, False), NEAR[torch.float64])


@pytest.mark.slow
@pytest.mark.parametrize("size", [111, 257])
@pytest.mark.parametrize("letter", ["S", "D", "E", "A", "B", "T"])
def test_beyond_a_block(device: str, letter: str, size: int) -> None:
    """One at a time: columns in several blocks, positions in every row of a tile."""
    if letter in "BT" and device == "cpu":
        size //= 32  # by the interpreter each is a program or a launch more: only time would change
    spec = DecoderSpec("lstm", 1, "before" if letter != "E" else "after")
    tensors = given(spec, True, device, {letter: size})
    compare(run(spec, tensors, True), run(spec, tensors, False), NEAR[torch.float64])


@pytest.mark.parametrize("size", [33, 300])
def test_dot_products_beyond_a_block(device: str, size: int) -> None:
    spec = DecoderSpec("gru", 1, "after", 0.3)
    tensors = given(spec, False, device, {"S": size, "D": 600 // size, "E": 20})
    compare(run(spec, tensors, True), run(spec, tensors, False), NEAR[torch.float64])


@pytest.mark.parametrize("way", KINDS)
def test_a_sentence_with_nothing_to_look_at(device: str, way: str) -> None:
    query, additive = KINDS[way]
    spec = DecoderSpec("lstm", 1, query)
    tensors = given(spec, additive, device)
    tensors["keep"][1] = False
    found = run(spec, tensors, True)
    compare(found, run(spec, tensors, False), NEAR[torch.float64])
    assert not found["output 1"][:, 1].any()  # c
    assert not found["output 2"][:, 1].any()  # α
    for name in ("keys", "values"):
        assert not found[f"gradient of {name}"][1].any()


@pytest.mark.parametrize("way", KINDS)
def test_what_may_not_be_looked_at_is_never_read(device: str, way: str) -> None:
    query, additive = KINDS[way]
    spec = DecoderSpec("gru", 1, query)
    tensors = given(spec, additive, device)
    wanted = run(spec, tensors, True)
    poisoned = {n: t.clone() for n, t in tensors.items()}
    for name in ("keys", "values"):
        poisoned[name][~tensors["keep"]] = float("nan")
    found = run(spec, poisoned, True)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize(("cell", "way"), list(zip(["lstm", "gru", "gru", "lstm"], KINDS, strict=True)))
def test_memory_that_nobody_wrote_is_never_read(
    device: str, cell: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, additive = KINDS[way]
    spec = DecoderSpec(cell, 1, query)
    tensors = given(spec, additive, device)
    wanted = run(spec, tensors, True)
    like, new = torch.empty_like, Tensor.new_empty
    filled: list[int] = []

    def poison(tensor: Tensor) -> Tensor:
        filled.append(tensor.numel())
        return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

    monkeypatch.setattr(torch, "empty_like", lambda *a, **k: poison(like(*a, **k)))
    monkeypatch.setattr(Tensor, "new_empty", lambda *a, **k: poison(new(*a, **k)))
    found = run(spec, tensors, True)
    assert len(filled) > 5
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("way", KINDS)
def test_what_does_not_lie_side_by_side(device: str, way: str) -> None:
    """By positions first, as an encoder leaves it; by columns; and a mask that is the same for all."""
    query, additive = KINDS[way]
    spec = DecoderSpec("lstm", 1, query)
    tensors = given(spec, additive, device)
    tensors["keep"] = tensors["keep"][:1].expand_as(tensors["keep"])
    wanted = run(spec, tensors, True)
    spread = dict(tensors)
    spread["values"] = tensors["values"].transpose(0, 1).contiguous().transpose(0, 1)
    spread["keys"] = tensors["keys"].permute(2, 1, 0).contiguous().permute(2, 1, 0)
    if additive:
        spread["v"] = tensors["v"].repeat_interleave(2)[::2]
    assert not any(spread[name].is_contiguous() for name in spread if spread[name] is not tensors[name])
    found = run(spec, spread, True)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("way", KINDS)
def test_the_same_again_to_the_bit(device: str, way: str) -> None:
    query, additive = KINDS[way]
    spec = DecoderSpec("gru", 2, query)
    tensors = given(spec, additive, device, {"S": 9})
    once, again = (run(spec, tensors, True, torch.float32) for _ in range(2))
    assert all(torch.equal(once[name], again[name]) for name in once)


def test_what_is_not_a_number_is_not_hidden(device: str) -> None:
    spec = DecoderSpec("lstm", 1, "before")
    tensors = given(spec, True, device)
    tensors["values"][1, 0, 0] = float("nan")
    found = run(spec, tensors, True)
    assert found["output 0"][:, 1].isnan().any()
    assert found["output 0"][:, 0].isfinite().all()


def test_autocast_does_not_reach_inside(device: str) -> None:
    spec = DecoderSpec("lstm", 1, "before")
    tensors = {n: t.float() if t.is_floating_point() else t for n, t in given(spec, True, device).items()}
    wanted = run(spec, tensors, True, torch.float32)
    with torch.autocast(device, torch.bfloat16):
        found = run(spec, tensors, True, torch.float32)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("way", KINDS)
def test_a_recorded_pass_computes_the_same(device: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With other numbers in the same places, too."""
    monkeypatch.setattr(unrolled, "steppable", lambda _: True)
    query, additive = KINDS[way]
    spec = DecoderSpec("lstm", 1, query)
    sizes = {"B": 9, "S": 33, "T": 7, "D": 64, "E": 40, "A": 48}
    tensors = {n: t.float() if t.is_floating_point() else t for n, t in given(spec, additive, device, sizes).items()}
    leaves = {n: t.requires_grad_() for n, t in tensors.items() if t.is_floating_point()}

    def work() -> list[Tensor]:
        found = outputs(unrolled_decoder(spec, tensors))
        slopes = torch.autograd.grad(found, list(leaves.values()), [torch.ones_like(f) for f in found])
        return [*(f.detach() for f in found), *slopes]

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = work()
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize()
        for one, other in zip(found, work(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        with torch.no_grad():
            tensors["x"].mul_(-0.5)


STEPS = {"before-additive": (4, 4), "before-dot": (4, 4), "after-additive": (6, 7), "after-dot": (6, 7)}


@pytest.mark.parametrize(("way", "there", "back"), [(way, *counts) for way, counts in STEPS.items()])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_how_many_operations_a_step_is(
    cell: str, way: str, there: int, back: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products and kernels: on a GPU each is a launch. Nothing is computed here."""
    launches: list[str] = []
    monkeypatch.setattr(
        Kernel, "__getitem__", lambda self, grid: lambda *a, **k: launches.append(self.function.__name__)
    )
    monkeypatch.setattr(unrolled, "steppable", lambda _: True)
    monkeypatch.setattr(recurrence, "span", lambda T, device: T)  # as on a GPU
    monkeypatch.setenv("TRITON_INTERPRET", "1")

    class Count(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            found = function(*args, **(kwargs or {}))
            if function.overloadpacket.__name__ not in VIEWS:
                launches.append(function.overloadpacket.__name__)
            return found

    query, additive = KINDS[way]
    spec = DecoderSpec(cell, 1, query)
    counts = []
    for T in (4, 14):
        tensors = {n: t.requires_grad_() if t.is_floating_point() else t
                   for n, t in given(spec, additive, "cpu", {"T": T}).items()}  # fmt: skip
        with Count():
            found = unrolled_decoder(spec, tensors)
            forward = len(launches)
            total = (found.s.sum(), found.c.sum())
            launches.clear()
            torch.autograd.backward(total)
            counts.append((forward, len(launches)))
            launches.clear()
    (few, few_back), (many, many_back) = counts
    assert (many - few, many_back - few_back) == (10 * there, 10 * back)
