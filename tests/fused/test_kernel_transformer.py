"""The Transformer in training by kernels, beside the same without them."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from kernel_device import kernel_device  # noqa: F401  (the fixture `device`)
from torch import Tensor
from torch.nn import functional as F

from heedful.config import TransformerConfig
from heedful.fused.triton.policy import usable
from heedful.models import build, transformer
from heedful.training.step import ModelWithLoss

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")
V = 13


def gradients(learner: ModelWithLoss, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    learner.zero_grad()
    total, _ = learner(x, y, torch.tensor(0.1, device=x.device))
    total.backward()
    return total.detach(), {name: p.grad.clone() for name, p in learner.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("norm", "activation", "cell"),
    [
        *product(("pre", "post"), ("relu", "gelu"), ("self-attention",)),
        ("pre", "relu", "ssru"),
        ("post", "gelu", "ssru"),
    ],
)
def test_without_dropout_it_is_the_same(
    device: str, norm: str, activation: str, cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    own = {"norm": norm, "activation": activation, "cell": cell}
    config = TransformerConfig(layers=2, width=12, heads=2, inner=20, dropout=0.0, attention_dropout=0.0, **own)
    model = build(config, V, V).to(device).train()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    x, y = torch.randint(1, V, (3, 5), device=device), torch.randint(1, V, (3, 6), device=device)
    x[1, 3:], y[2, 4:] = 0, 0
    results = []
    for fused in (False, True):
        monkeypatch.setattr(transformer, "_by_kernels", lambda _, fused=fused: fused)
        results.append(gradients(ModelWithLoss(model, 0.1), x, y))
    (wanted, slopes), (found, others) = results
    torch.testing.assert_close(found, wanted)
    assert slopes.keys() == others.keys()
    for name, slope in slopes.items():
        torch.testing.assert_close(others[name], slope, rtol=1e-3, atol=1e-5, msg=lambda text, name=name: name + text)


def test_dropout_follows_from_the_seed(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer, "_by_kernels", lambda _: True)
    model = build(TransformerConfig(layers=1, width=8, heads=2, inner=8, dropout=0.5), V, V).to(device).train()
    x, y = torch.randint(1, V, (2, 4), device=device), torch.randint(1, V, (2, 4), device=device)
    totals = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        totals.append(gradients(ModelWithLoss(model), x, y)[0].item())
    assert totals[0] == totals[1] != totals[2]


def test_only_training_uses_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformer, "usable", lambda _: True)
    x = torch.zeros(1, 2, 3, dtype=torch.bfloat16)
    assert transformer.Stream.of(x, training=True).drops is not None
    assert transformer.Stream.of(x, training=False).drops is None
    with torch.no_grad():
        assert transformer.Stream.of(x, training=True).drops is None


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_layers_take_kernels_in_half_types_only(monkeypatch: pytest.MonkeyPatch, kind: torch.dtype) -> None:
    """By autocast, or because x is of one: in fp32 they were slower than without."""
    wide = torch.zeros(1, 2, 3)
    monkeypatch.setattr(transformer, "usable", lambda _: True)
    assert transformer.Stream.of(wide, training=True).drops is None
    assert transformer.Stream.of(wide.to(kind), training=True).drops is not None
    with torch.autocast("cpu", kind):
        assert transformer.Stream.of(wide, training=True).drops is not None
        with torch.autocast("cpu", enabled=False):
            assert transformer.Stream.of(wide, training=True).drops is None
    monkeypatch.setattr(transformer, "usable", lambda _: False)
    assert transformer.Stream.of(wide.to(kind), training=True).drops is None


def test_on_the_cpu_there_are_none() -> None:
    assert not usable(torch.zeros(1))


@pytest.mark.gpu
def test_a_switch_turns_them_off(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    x = torch.zeros(1, device="cuda")
    monkeypatch.delenv("HEEDFUL_KERNELS", raising=False)
    assert usable(x)
    monkeypatch.setenv("HEEDFUL_KERNELS", "off")
    assert not usable(x)


@pytest.mark.gpu
def test_a_recorded_pass_draws_new_masks(device: str) -> None:
    """And the same again after the same seed."""
    from heedful.fused.triton.sublayers import DropoutMasks, relu_dropout

    x, b = torch.ones(64, 64, device=device), torch.zeros(64, device=device)

    def work() -> Tensor:
        return relu_dropout(x, b, 0.5, DropoutMasks(x.device))

    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = work()
    seen = []
    for seed in (1, None, 1):
        if seed:
            torch.manual_seed(seed)
        graph.replay()
        seen.append(y.clone())
    assert not torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], seen[2])
    torch.manual_seed(1)
    assert torch.equal(work(), seen[0])


@pytest.mark.gpu
def test_a_step_in_bf16_is_near_the_one_without(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    config = TransformerConfig(layers=2, width=256, heads=4, inner=512, dropout=0.0, attention_dropout=0.0)
    model = build(config, 1001, 1001).to(device).train()
    x, y = torch.randint(1, 1001, (40, 30), device=device), torch.randint(1, 1001, (40, 31), device=device)
    results = []
    for off in ("off", "on"):
        monkeypatch.setenv("HEEDFUL_KERNELS", off)
        with torch.autocast("cuda", torch.bfloat16):
            results.append(gradients(ModelWithLoss(model, 0.1, 1.0), x, y))
    (wanted, slopes), (found, others) = results
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
    for name, slope in slopes.items():
        # The direction, not every number: each is rounded to 8 bits.
        assert F.cosine_similarity(slope.flatten(), others[name].flatten(), dim=0) > 0.99, name
