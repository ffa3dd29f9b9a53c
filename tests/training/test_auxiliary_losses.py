"""An auxiliary loss is one class and one entry of the table: it is trained with, logged, and told by name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import TINY, copies
from torch import Tensor

import heedful
from heedful.config import Config, FixedConfig, TrainingConfig
from heedful.errors import ConfigError
from heedful.models import NeedWeights, build
from heedful.training.losses import (
    AUXILIARY,
    DecoderOutputs,
    DoublyStochastic,
    attention_needed,
    auxiliary_losses,
)
from heedful.training.step import ModelWithLoss

FIRST_LAYER = NeedWeights(layer=0)


@dataclass(frozen=True)
class AttendFirst:
    """-log α_t1 of every target token: all of them are to attend to the first source token."""

    weight: float
    need_weights: NeedWeights = FIRST_LAYER

    def __call__(self, outputs: DecoderOutputs) -> tuple[Tensor, Tensor]:
        weights = outputs.attention(self.need_weights)
        keep = outputs.y != 0
        passes = len(weights) // len(outputs.y)
        surprise = -weights[:, 0, :, :, 0].mean(1).log() * keep.repeat(passes, 1)
        return surprise.sum() / passes, keep.sum()


@pytest.fixture
def _entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AUXILIARY, "first", lambda config, weight: AttendFirst(weight))


@pytest.mark.usefixtures("_entry")
@pytest.mark.parametrize("family", ["rnn", "transformer"])
def test_it_is_trained_with(family: str, tmp_path: Path) -> None:
    training = {**TINY["training"], "steps": 20, "valid_every": 20, "log_every": 10}
    shares = {}
    for weight in (0, 3):
        model = {"family": family, "width": 16, "dropout": 0.1, **({"heads": 2} if family == "transformer" else {})}
        settings = {"text": {"kind": "word"}, "model": model, "training": {**training, "losses": {"first": weight}}}
        seen: list[heedful.training.Progress] = []
        translator = heedful.train(
            copies(100), tmp_path / str(weight), settings=settings, verbose=False, callback=seen.append
        )
        records = [json.loads(line) for line in (tmp_path / str(weight) / "metrics.jsonl").read_text().splitlines()]
        logged = [record["first"] for record in records if "first" in record]
        assert len(logged) == (2 if weight else 0)
        if weight:
            assert seen[-2].losses["first"] == logged[-1]  # the last report is of the validation
            assert translator.config.training.losses == "first=3.0"
        traces = translator.reread(*zip(*copies(40, seed=5), strict=True))
        shares[weight] = np.mean([t.weights[0, :, :, 0].mean() for t in traces if t.weights is not None])
    assert shares[3] > shares[0] + 0.3


@pytest.mark.usefixtures("_entry")
def test_the_total_is_a_sum_of_named_losses() -> None:
    config = Config.build({"model": {"family": "rnn", "width": 8}, "training": {"losses": "first=0.5"}})
    terms = auxiliary_losses(config)
    assert list(terms) == ["first"]
    torch.manual_seed(0)
    model = build(config.model, 12, 12)
    x, y = torch.tensor([[5, 6, 3], [7, 3, 0]]), torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]])
    share = torch.tensor(1 / 5)
    plain, right = ModelWithLoss(model.eval())(x, y, share)
    total, also_right, value, count = ModelWithLoss(model.eval(), auxiliary=terms)(x, y, share)
    assert torch.equal(right, also_right)
    assert count == 5
    torch.testing.assert_close(total, plain + 0.5 * value / 5)


@pytest.mark.usefixtures("_entry")
def test_unknown_names_and_bad_weights_are_refused(tmp_path: Path) -> None:
    for given, fact in (
        ({"frist": 1}, "Did you mean 'first'"),
        ("first=-1", "'first=-1'"),
        ("x", "'x'"),
        ({"first": -1}, "{'first': -1}, .* from 0 to 1000"),
    ):
        with pytest.raises(ConfigError, match=fact):
            heedful.train(copies(10), tmp_path / "m", losses=given, device="cpu", verbose=False)
    assert not (tmp_path / "m").exists()


def test_losses_that_read_different_layers_share_all_layers() -> None:
    assert attention_needed([]) is None
    assert attention_needed([AttendFirst(1.0), AttendFirst(2.0)]) == NeedWeights(layer=0)
    assert attention_needed([AttendFirst(1.0), AttendFirst(1.0, NeedWeights(layer=1))]) == NeedWeights()
    weights = torch.rand(2, 3, 4, 5, 6)
    outputs = DecoderOutputs(torch.nn.Module(), *[torch.zeros(0)] * 3, weights, None)  # type: ignore[arg-type]
    assert torch.equal(outputs.attention(NeedWeights(layer=1)), weights[:, 1:2])
    assert torch.equal(outputs.attention(NeedWeights(layer=-1)), weights[:, 2:])
    assert outputs.attention(NeedWeights()) is weights


@pytest.mark.usefixtures("_entry")
def test_a_loss_that_needs_weights_is_an_error_without_attention() -> None:
    config = Config(model=FixedConfig(), training=TrainingConfig(losses="first=0.5"))
    with pytest.raises(ConfigError, match=r"first.*model\.family=fixed"):
        auxiliary_losses(config)


def test_a_loss_cannot_take_the_name_of_another_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AUXILIARY, "accuracy", lambda config, weight: AttendFirst(weight))
    with pytest.raises(ConfigError, match=r"accuracy.*metrics\.jsonl"):
        auxiliary_losses(Config(training=TrainingConfig()))


def test_doubly_stochastic_attention_by_hand() -> None:
    """Two regions and the row that is none; then one region, beside padding. The last token of the first is padding."""
    first = [[0.5, 0.3, 0.2], [0.1, 0.7, 0.2], [1.0, 0.0, 0.0]]
    second = [[0.25, 0.75, 0.0]] * 3
    mean = torch.tensor([first, second])
    weights = torch.stack([mean + 0.1, mean - 0.1], dim=1)[:, None].requires_grad_()  # (B, 1 layer, 2 heads, T, S)
    keep = torch.tensor([[True, True, True], [True, True, False]])
    y = torch.tensor([[5, 3, 0], [5, 6, 3]])
    model = build(Config.build({"model": {"family": "rnn", "width": 8}}).model, 9, 9)
    loss = DoublyStochastic(1.0)
    expected = (1 - 0.6) ** 2 + (1 - 1.0) ** 2 + (1 - 0.75) ** 2
    value, sentences = loss(DecoderOutputs(model, keep, y, torch.zeros(2, 3, 8), weights, None))
    assert value.item() == pytest.approx(expected)
    assert int(sentences) == 2
    value.backward()
    assert weights.grad is not None
    # d/dα of (1 - Σ_t α)², half of it for each of two heads.
    assert weights.grad[0, 0, 0, :, 0].tolist() == pytest.approx([-0.4, -0.4, 0.0])
    assert weights.grad[1, 0, 1, :, 0].tolist() == pytest.approx([-0.25, -0.25, -0.25])
    assert not weights.grad[1, 0, :, :, 1:].any()
    twice = torch.cat([weights, weights]).detach()  # R-Drop: both passes
    value, sentences = loss(DecoderOutputs(model, keep, y, torch.zeros(4, 3, 8), twice, None))
    assert float(value) == pytest.approx(expected)
    assert int(sentences) == 2


def test_doubly_stochastic_attention_is_a_setting() -> None:
    config = Config.build({"training": {"losses": "doubly_stochastic=0.5"}})
    assert auxiliary_losses(config) == {"doubly_stochastic": DoublyStochastic(0.5)}
    with pytest.raises(ConfigError, match="fixed"):
        auxiliary_losses(Config.build({"model": {"family": "fixed"}, "training": {"losses": "doubly_stochastic=1"}}))
