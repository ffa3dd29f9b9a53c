"""Packed weights: the same values by oneDNN as by BLAS, only where asked for, and never those of other weights."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from heedful.attention import until
from heedful.config import RnnConfig, TransformerConfig
from heedful.decoding import Decoding, beam, greedy
from heedful.fused.cpu import linear
from heedful.fused.cpu.linear import onednn_is_faster, onednn_rows
from heedful.fused.cpu.transformer import PackedLinear, PackedWeights, _OneSource, _SourceAttention
from heedful.models import NeedWeights, Network, build, pack_weights
from heedful.models.layers import Linear

V = 30
ONEDNN = all(hasattr(torch.ops.mkldnn, name) for name in ("_linear_pointwise", "_reorder_linear_weight"))
needs_onednn = pytest.mark.skipif(not ONEDNN, reason="PyTorch was built without oneDNN")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(params=[False, pytest.param(True, marks=needs_onednn)], ids=["BLAS", "oneDNN"])
def onednn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Which library is said to be faster."""
    monkeypatch.setattr(linear, "onednn_is_faster", lambda: request.param)
    return bool(request.param)


def make(pack: bool = True, **settings: object) -> Network:
    torch.manual_seed(2)
    config = TransformerConfig(width=16, heads=4, inner=24, layers=2, **settings)  # type: ignore[arg-type]
    model = build(config, V, V).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.4)
    if pack:
        pack_weights(model)
    return model


def source(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    keep = until(torch.tensor(lengths))
    return torch.randint(4, V, keep.shape, generator=torch.Generator().manual_seed(3)).masked_fill(~keep, 0), keep


@pytest.mark.parametrize("rows", [0, 1, 2])
@pytest.mark.parametrize("R", [1, 2, 5])
@needs_onednn
def test_a_product_is_that_of_pytorch(rows: int, R: int) -> None:
    W, b, x = torch.randn(9, 7), torch.randn(9), torch.randn(R, 7)
    for laid_out in (W, W.t().contiguous().t(), torch.cat([W, W])[9:]):
        for bias in (b, None):
            product = PackedLinear(laid_out, bias, rows)
            assert (product.packed is not None) == bool(rows)
            torch.testing.assert_close(product(x), torch.nn.functional.linear(x, W, bias))


@needs_onednn
def test_few_rows_are_multiplied_by_blas() -> None:
    product = PackedLinear(torch.ones(2, 3), None, 2)
    product.W_t = torch.zeros(3, 2)  # what BLAS would read
    assert float(product(torch.ones(1, 3)).sum()) == 0.0
    assert float(product(torch.ones(2, 3)).sum()) == 12.0


def test_rows_depend_on_the_size_and_the_kind_of_the_weights(onednn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    small, double = torch.ones(3, 3), torch.ones(3, 3, dtype=torch.float64)
    assert onednn_rows([small, small]) == (2 if onednn else 0)
    assert onednn_rows([small, double]) == 0
    monkeypatch.setattr(linear, "LARGE", 17)
    assert onednn_rows([small, small]) == (1 if onednn else 0)


@needs_onednn
def test_one_row_of_a_large_matrix_is_divided_among_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "DIVIDED", 6)
    for threads, numbers, read in ((1, 6, 0.0), (2, 6, 6.0), (2, 4, 0.0)):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        product = PackedLinear(torch.ones(numbers // 2, 2), None, 2)
        product.W_t = torch.zeros(2, numbers // 2)  # what BLAS would read
        assert float(product(torch.ones(1, 2)).sum()) == read
    assert not PackedLinear(torch.ones(9, 9), None, 0).takes(1)  # BLAS computes everything


def test_matrices_lie_by_their_shorter_side() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 6), torch.nn.Linear(6, 2))
    pack_weights(model)
    assert [layer.weight.t().is_contiguous() for layer in model] == [True, False]
    pack_weights(model, decoding=False)
    assert all(layer.weight.is_contiguous() for layer in model)


def test_the_libraries_are_measured_once_and_without_onednn_it_is_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([[1.0, 0.5], [1.0, 0.9]])
    monkeypatch.setattr(linear, "_fastest", lambda *works: next(times))
    try:
        for faster in (ONEDNN, False):
            linear._measured.cache_clear()
            assert onednn_is_faster() is faster
            assert onednn_is_faster() is faster  # not measured again
        monkeypatch.setattr(torch.ops, "mkldnn", object())
        linear._measured.cache_clear()
        linear._works.cache_clear()
        assert onednn_is_faster() is False
    finally:
        linear._measured.cache_clear()
        linear._works.cache_clear()


def test_the_library_can_be_chosen_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "_measured", lambda: "measured")
    for wanted in (True, False):
        with linear.using_onednn(wanted):
            assert onednn_is_faster() is (wanted and ONEDNN)
            with linear.using_onednn(None):
                assert onednn_is_faster() == "measured"
    assert onednn_is_faster() == "measured"


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("lengths", [(5,), (5, 2, 7)])
@pytest.mark.parametrize("K", [1, 3])
@torch.no_grad()
def test_packed_layers_are_the_decoder(onednn: bool, norm: str, lengths: tuple[int, ...], K: int) -> None:
    """One sentence, whose keys are multiplied by the weights once, and several; with a beam and without."""
    model, plain = make(norm=norm, bias=True), make(pack=False, norm=norm, bias=True)
    x, keep = source(*lengths)
    with torch.enable_grad():
        reference = plain.encode(x, keep)
    memory = model.encode(x, keep)
    for part, other in zip(memory.keys, reference.keys, strict=True):
        torch.testing.assert_close(part.transpose(1, 2)[keep], other.transpose(1, 2)[keep], rtol=1e-5, atol=1e-5)
    rows = torch.arange(len(lengths)).repeat_interleave(K)
    slow, fast = plain.start(reference, 40).select(rows), model.start(memory, 40).select(rows)
    for _ in range(20):
        y = torch.randint(4, V, (len(rows), 1))
        wanted = plain.step(y, slow, reference, NeedWeights()).hidden
        found = model.step(y, fast, memory).hidden
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(model.logits(found[:, 0]), plain.logits(wanted[:, 0]), rtol=1e-5, atol=1e-4)
    kinds = {type(each) for each in fast.fast.sources}  # type: ignore[attr-defined]
    assert kinds == ({_SourceAttention} if len(lengths) > 1 or lengths[0] > 4 else {_OneSource})


@pytest.mark.parametrize(("length", "kind"), [(4, _OneSource), (5, _SourceAttention)])
@torch.no_grad()
def test_only_a_short_sentence_is_multiplied_by_the_weights(length: int, kind: type) -> None:
    """Heads are 4 wide: for more tokens the product would be larger than the weights."""
    model = make()
    x, keep = source(length)
    memory = model.encode(x, keep)
    state, y = model.start(memory, 3), torch.full((1, 1), 5)
    plain = model.step(y, model.start(memory, 3), memory, NeedWeights()).hidden
    torch.testing.assert_close(model.step(y, state, memory).hidden, plain, rtol=1e-5, atol=1e-5)
    assert {type(each) for each in state.fast.sources} == {kind}  # type: ignore[attr-defined]


@torch.no_grad()
def test_weights_that_change_are_not_those_that_were_packed(onednn: bool) -> None:
    model = make()
    x, keep = source(5, 3)
    before = model.encode(x, keep)
    assert model.packed.current  # type: ignore[union-attr, operator]
    model.load_state_dict({name: weight * 1.5 for name, weight in model.state_dict().items()})
    assert not model.packed.current  # type: ignore[union-attr, operator]
    after, y = model.encode(x, keep), torch.full((2, 1), 5)
    assert not torch.allclose(before.h, after.h)
    plain = model.step(y, model.start(after, 3), after, NeedWeights()).hidden
    torch.testing.assert_close(model.step(y, model.start(after, 3), after).hidden, plain, rtol=1e-5, atol=1e-5)
    with torch.enable_grad():
        torch.testing.assert_close(model.encode(x, keep).h[keep], after.h[keep], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_a_copy_of_a_model_packs_for_itself(onednn: bool) -> None:
    model = make()
    assert isinstance(model.packed, PackedWeights)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.packed is None
        assert twin.packed_output is None
        x, keep = source(5, 3)
        torch.testing.assert_close(twin.encode(x, keep).h[keep], model.encode(x, keep).h[keep], rtol=1e-5, atol=1e-5)
    assert not any("packed" in name for name in model.state_dict())
    model.train()
    assert model.packed is None
    assert model.packed_output is None


@torch.no_grad()
def test_both_libraries_write_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    if not ONEDNN:
        pytest.skip("PyTorch was built without oneDNN")
    x, keep = source(5, 2, 7)
    found = []
    for faster in (False, True):
        monkeypatch.setattr(linear, "onednn_is_faster", lambda faster=faster: faster)
        model = make(norm="post")
        memory = model.encode(x, keep)
        limits = [15] * 3
        found.append(
            (
                [h.ids for h in greedy(model, memory, limits)],
                [h.ids for each in beam(model, memory, limits, Decoding(beam=3)) for h in each],
            )
        )
    assert found[0] == found[1]


@pytest.mark.parametrize("tied", [True, False])
@torch.no_grad()
def test_a_packed_rnn_is_the_rnn(onednn: bool, tied: bool) -> None:
    torch.manual_seed(1)
    plain = build(RnnConfig(width=16, embedding=16, order="luong", cell="lstm", tied=tied), V, V).eval()
    model = copy.deepcopy(plain)
    pack_weights(model)
    packed = [m for m in model.modules() if isinstance(m, Linear) and m.packed is not None]
    assert bool(packed) == onednn
    x, keep = source(5, 3)
    memory, reference = model.encode(x, keep), plain.encode(x, keep)
    state, other = model.start(memory, 9), plain.start(reference, 9)
    for _ in range(5):
        y = torch.randint(4, V, (2, 1))
        found, state, _ = model.step(y, state, memory)
        wanted, other, _ = plain.step(y, other, reference)
        torch.testing.assert_close(model.logits(found), plain.logits(wanted), rtol=1e-5, atol=1e-5)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert all(m.packed is None for m in twin.modules() if isinstance(m, Linear))
    for each in packed:
        each.weight.mul_(2.0)  # what was packed is not used any more
        ones = torch.ones(2, each.in_features)
        torch.testing.assert_close(each(ones), torch.nn.functional.linear(ones, each.weight, each.bias))
    model.train()
    assert all(m.packed is None for m in packed)
