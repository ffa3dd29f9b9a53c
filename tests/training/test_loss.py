from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from small_runs import pad

from heedful.config import RnnConfig, TrainingConfig
from heedful.data.batches import Batch
from heedful.models import build
from heedful.training.step import learning_rate, loss


@pytest.fixture
def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return build(RnnConfig(width=8, embedding=6, dropout=0.0), 9, 7).double()


def batch(x: list[list[int]], y: list[list[int]]) -> Batch:
    return Batch(pad(x), pad(y), np.arange(len(x)), sum(len(row) - 1 for row in y))


def test_the_mean_log_probability_by_hand(model: torch.nn.Module) -> None:
    one = batch([[4, 5, 3]], [[2, 4, 3]])
    memory = model.encode(one.x, one.x != 0)
    hidden = model.step(one.y[:, :-1], model.start(memory, 2), memory).hidden
    log_probs = model.logits(hidden).log_softmax(-1)[0]
    found = loss(model, one)
    assert found.tokens == 2
    assert found.mean.item() == pytest.approx(-(log_probs[0, 4] + log_probs[1, 3]).item() / 2, abs=1e-6)
    # Smoothing gives every word of the vocabulary its share of 0.1.
    flat = -log_probs.mean().item()
    assert loss(model, one, 0.1).mean.item() == pytest.approx(0.9 * found.mean.item() + 0.1 * flat, abs=1e-6)


def test_padding_weighs_nothing(model: torch.nn.Module) -> None:
    short, long = ([4, 3], [2, 5, 3]), ([4, 5, 6, 7, 3], [2, 4, 6, 4, 5, 3])
    both = loss(model, batch([short[0], long[0]], [short[1], long[1]]))
    alone = [loss(model, batch([x], [y])) for x, y in (short, long)]
    assert both.tokens == 2 + 5
    assert both.mean.item() * 7 == pytest.approx(sum(a.mean.item() * a.tokens for a in alone), abs=1e-5)
    assert int(both.correct) == sum(int(a.correct) for a in alone)


def test_rate_rises_and_falls() -> None:
    config = TrainingConfig(rate=0.4, warmup=4)
    assert [learning_rate(t, config) for t in (1, 2, 4)] == pytest.approx([0.1, 0.2, 0.4])
    assert learning_rate(16, config) == pytest.approx(0.2)
    assert learning_rate(100, TrainingConfig(rate=0.4, warmup=4, decay="none")) == 0.4
    assert learning_rate(1, TrainingConfig(rate=0.4, warmup=0, decay="none")) == 0.4
    assert all(math.isfinite(learning_rate(t, TrainingConfig(warmup=0))) for t in (1, 2, 3))
