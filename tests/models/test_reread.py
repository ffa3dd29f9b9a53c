"""Teacher forcing of whole sentences, real tokens only, equals `step`; and stops where nothing more is needed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heedful.attention import until
from heedful.config import FixedConfig, ModelConfig, RnnConfig, TransformerConfig
from heedful.decoding.ensemble import Ensemble
from heedful.errors import ConfigError
from heedful.fused.cpu import transformer as fast
from heedful.fused.cpu.linear import using_onednn
from heedful.models import NeedWeights, build, pack_weights

pytestmark = pytest.mark.usefixtures("one_thread")
V, B = 12, 4
SOURCES, TARGETS = [3, 7, 1, 5], [3, 1, 6, 4]
SHAPE = {"layers": 2, "decoder_layers": 3, "width": 8, "heads": 4, "inner": 12}
CONFIGS: dict[str, ModelConfig] = {
    "bahdanau": RnnConfig(width=8, embedding=6, score="additive", cell="gru"),
    "luong": RnnConfig(width=8, embedding=6, score="general", order="luong", cell="lstm", tied=True),
    "fixed": FixedConfig(width=8, embedding=6, cell="gru", context="every"),
    "pre": TransformerConfig(**SHAPE, norm="pre"),
    "ssru": TransformerConfig(**SHAPE, cell="ssru"),
    "ssru post": TransformerConfig(**SHAPE, norm="post", cell="ssru"),
    "post": TransformerConfig(**SHAPE, norm="post", activation="silu"),
    "gelu": TransformerConfig(**SHAPE, norm="post", activation="gelu"),
}
models = pytest.mark.parametrize("name", CONFIGS)
transformers = pytest.mark.parametrize("name", ["pre", "post", "gelu"])


def make(name: str):
    torch.manual_seed(3)
    model = build(CONFIGS[name], V, V).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.6)
    return model


def sentences() -> tuple[Tensor, Tensor, Tensor]:
    keep, real = until(torch.tensor(SOURCES)), until(torch.tensor(TARGETS))
    ids = torch.Generator().manual_seed(2)
    x, y = (torch.randint(4, V, mask.shape, generator=ids) for mask in (keep, real))
    return x.masked_fill(~keep, 0), keep, y.masked_fill(~real, 0)


def same(found: Tensor | None, wanted: Tensor) -> None:
    assert found is not None
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.fixture(params=["BLAS", "oneDNN"])
def product(request):
    """Products of packed models by each library, if it is there."""
    with using_onednn(request.param == "oneDNN"):
        yield


@models
@pytest.mark.usefixtures("product")
@pytest.mark.parametrize("packed", [False, True])
@torch.no_grad()
def test_equals_a_step_over_all_positions(name, packed):
    model, (x, keep, y) = make(name), sentences()
    if packed:
        pack_weights(model)
    memory = model.encode(x, keep, NeedWeights())
    hidden, _, weights = model.step(y, model.start(memory, y.shape[1]), memory, NeedWeights())
    found = model.reread(y, TARGETS, model.encode(x, keep), NeedWeights())
    real = until(torch.tensor(TARGETS))
    same(found.hidden, hidden[real])
    if weights is None:
        assert found.weights is None
    else:
        for b, (n, S) in enumerate(zip(TARGETS, SOURCES, strict=True)):
            same(found.weights[b, :, :, :n, :S], weights[b, :, :, :n, :S])
            assert not found.weights[b, :, :, :n, S:].any()
    blind = model.reread(y, TARGETS, memory)
    same(blind.hidden, hidden[real])
    assert blind.weights is None


@transformers
@pytest.mark.parametrize("layer", [0, 1, -1, None])
def test_one_layer_is_one_of_all(name, layer):
    model, (x, keep, y) = make(name), sentences()
    slices = slice(None) if layer is None else [layer]
    for grad in (False, True):  # with gradients, by the layers that are the definition
        with torch.set_grad_enabled(grad):
            memory = model.encode(x, keep)
            every = model.reread(y, TARGETS, memory, NeedWeights()).weights
            found = model.reread(y, TARGETS, memory, NeedWeights(layer=layer), need_hidden=False)
            assert found.hidden is None
            same(found.weights, every[:, slices])
            with pytest.raises(ConfigError, match="layer 3"):
                model.reread(y, TARGETS, memory, NeedWeights(layer=3), need_hidden=False)


@transformers
@pytest.mark.parametrize("grad", [False, True])
def test_nothing_after_the_weights_is_computed(name, grad, monkeypatch):
    model, (x, keep, y) = make(name), sentences()
    memory = model.encode(x, keep)
    calls: list[int] = []
    if grad:
        for number, layer in enumerate(model.decoder):
            layer.around_inside.LN.register_forward_hook(lambda *given, number=number: calls.append(number))
    else:
        norms = {id(layer.around_inside.LN.weight): number for number, layer in enumerate(model.decoder)}
        norm = torch.layer_norm
        monkeypatch.setattr(
            torch,
            "layer_norm",
            lambda x, shape, W, *more: (
                calls.append(norms[id(W)]) if id(W) in norms else None,
                norm(x, shape, W, *more),
            )[1],
        )
    with torch.set_grad_enabled(grad):
        model.reread(y, TARGETS, memory, NeedWeights(layer=1), need_hidden=False)
        assert calls == [0, 1]
        calls.clear()
        model.reread(y, TARGETS, memory, NeedWeights(layer=1))
    assert calls == [0, 1, 2]


@torch.no_grad()
def test_only_real_rows_are_multiplied(monkeypatch):
    model, (x, keep, y) = make("pre"), sentences()
    rows = []
    real = fast.PackedLinear.__call__
    monkeypatch.setattr(fast.PackedLinear, "__call__", lambda self, x: rows.append(len(x)) or real(self, x))
    memory = model.encode(x, keep)
    assert set(rows) == {sum(SOURCES)}
    rows.clear()
    model.reread(y, TARGETS, memory, NeedWeights())
    assert set(rows) == {sum(TARGETS)}


@torch.no_grad()
def test_an_empty_source_has_no_weights():
    model, (x, _, y) = make("post"), sentences()
    keep = until(torch.tensor([3, 0, 7, 2]))
    memory = model.encode(x, keep)
    hidden = model.step(y, model.start(memory, y.shape[1]), memory, NeedWeights()).hidden
    found = model.reread(y, TARGETS, memory, NeedWeights())
    assert not found.weights[1].any()
    same(found.hidden, hidden[until(torch.tensor(TARGETS))])
    same(model.reread(y, TARGETS, memory).hidden, hidden[until(torch.tensor(TARGETS))])


@torch.no_grad()
def test_an_ensemble_averages_probabilities():
    model, (x, keep, y) = Ensemble([make("pre"), make("luong")]), sentences()
    memory = model.encode(x, keep)
    log_p, _, weights = model.step(y, model.start(memory, y.shape[1]), memory, NeedWeights())
    found = model.reread(y, TARGETS, memory, NeedWeights())
    same(found.hidden, log_p[until(torch.tensor(TARGETS))])
    same(found.weights[2], weights[2])
    assert model.reread(y, TARGETS, memory, NeedWeights(), need_hidden=False).hidden is None


def test_the_places_of_real_tokens():
    assert fast.PackedRows.real([2, 0, 3], 3).tolist() == [0, 1, 6, 7, 8]
