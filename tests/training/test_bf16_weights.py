"""Weights rounded all at once: the same numbers as autocast's, which rounds them one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from heedful.config import RnnConfig, TrainingConfig, TransformerConfig
from heedful.data.batches import Batch
from heedful.models import Network, build
from heedful.training.step import Bf16Weights, ModelWithLoss, TrainingStep


def made(**settings: object) -> Network:
    torch.manual_seed(3)
    shape = {"layers": 2, "width": 16, "heads": 2, "inner": 24, "dropout": 0.1, **settings}
    return build(TransformerConfig(**shape), 11, 11).train()  # type: ignore[arg-type]


def learned(model: Network, copies: bool, rdrop: float = 0.0) -> dict[str, torch.Tensor]:
    learner = ModelWithLoss(model, 0.1, rdrop)
    x, y = torch.tensor([[4, 5, 6, 3], [7, 3, 0, 0]]), torch.tensor([[2, 4, 5, 3], [2, 6, 3, 0]])
    other = Bf16Weights(learner, model.bf16_weights())
    torch.manual_seed(5)
    with torch.autocast("cpu", torch.bfloat16):
        total, *_ = (other if copies else learner)(x, y, torch.tensor(0.2), None)
    total.backward()
    if copies:
        other.set_gradients()
        assert all(copy.grad is None for copy in other.copies)
    return {"loss": total.detach(), **{name: p.grad for name, p in model.named_parameters() if p.grad is not None}}


@pytest.mark.parametrize("settings", [{}, {"tied": "all"}, {"tied": "none", "norm": "post"}, {"bias": True}])
@pytest.mark.parametrize("rdrop", [0.0, 2.0])
def test_the_same_numbers_as_autocast(settings: dict[str, object], rdrop: float) -> None:
    wanted, found = learned(made(**settings), False, rdrop), learned(made(**settings), True, rdrop)
    assert wanted.keys() == found.keys()
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name
        assert found[name].dtype == torch.float32


def test_what_has_copies() -> None:
    model = made(tied="all")
    copies = Bf16Weights(ModelWithLoss(model), model.bf16_weights())
    names = set(copies.named)
    assert all(name.startswith("model.") for name in names)
    assert "model.encoder.0.inside.W.weight" in names
    assert "model.decoder.1.across.W_o.bias" in names
    assert "model.encoder.0.forward_layer.W_1.bias" not in names
    assert not [name for name in names if "embedding" in name or "LN" in name]
    rnn = build(RnnConfig(width=8, embedding=8), 9, 9)
    assert not Bf16Weights(ModelWithLoss(rnn), rnn.bf16_weights()).named


def test_they_follow_the_weights() -> None:
    model = made()
    copies = Bf16Weights(ModelWithLoss(model), model.bf16_weights())
    inputs = (torch.tensor([[4, 3]]), torch.tensor([[2, 5, 3]]), torch.tensor(1.0), None)
    model.eval()
    with torch.autocast("cpu", torch.bfloat16):
        before = copies(*inputs)[0]
        with torch.no_grad():
            for weight in model.bf16_weights():  # type: ignore[operator]
                weight.zero_()
        assert copies(*inputs)[0] != before
    assert torch.equal(copies.copies[0].detach(), torch.zeros_like(copies.copies[0]))


@pytest.mark.gpu
def test_recorded_steps_learn_the_same() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    x, y = torch.tensor([[4, 5, 6, 3], [7, 8, 3, 0]]), torch.tensor([[2, 4, 5, 3], [2, 6, 3, 0]])
    losses = []
    for copies in (True, False):
        updater = TrainingStep(made(dropout=0.0).cuda(), TrainingConfig(ema=0.0), torch.device("cuda"), bf16=True)
        assert updater.bf16_weights is not None
        updater.bf16_weights = updater.bf16_weights if copies else None
        for step in range(1, 9):  # from the third on they are recorded
            updater([Batch(x, y, np.arange(2), 5).to(torch.device("cuda"))], 5, step, 0.01)
        losses.append(updater.read().loss)
    assert losses[0] == pytest.approx(losses[1], rel=0.01)
