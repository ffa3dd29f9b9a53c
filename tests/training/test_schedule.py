"""The learning rate by hand: up a straight line, then down one of three ways."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from heedful.config import Config, TrainingConfig
from heedful.errors import ConfigError
from heedful.training.step import learning_rate

DECAYS = ("root", "cosine", "none")


def settings(decay: str, warmup: int = 100, steps: int = 500) -> TrainingConfig:
    return TrainingConfig(rate=2.0, warmup=warmup, decay=decay, steps=steps)


@pytest.mark.parametrize("decay", DECAYS)
def test_up(decay: str) -> None:
    found = [learning_rate(step, settings(decay)) for step in (1, 25, 50, 99, 100)]
    assert found == pytest.approx([0.02, 0.5, 1.0, 1.98, 2.0])


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        # At a quarter, a half, three quarters and all of the way from step 100 to step 500.
        ("root", [2 * math.sqrt(1 / 2), 2 * math.sqrt(1 / 3), 1.0, 2 * math.sqrt(1 / 5)]),
        ("cosine", [1 + math.sqrt(1 / 2), 1.0, 1 - math.sqrt(1 / 2), 0.0]),
        ("none", [2.0, 2.0, 2.0, 2.0]),
    ],
)
def test_down(decay: str, expected: list[float]) -> None:
    assert [learning_rate(step, settings(decay)) for step in (200, 300, 400, 500)] == pytest.approx(expected)


def test_the_cosine_falls_all_the_way_and_never_below_zero() -> None:
    found = [learning_rate(step, settings("cosine")) for step in range(100, 501)]
    assert all(later < earlier for earlier, later in pairwise(found))
    assert found[-1] == 0.0
    assert learning_rate(600, settings("cosine")) == 0.0


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize(("warmup", "steps"), [(0, 1), (0, 10), (1, 1), (10, 10), (50, 10)])
def test_short_runs_have_a_rate_at_every_step(decay: str, warmup: int, steps: int) -> None:
    assert all(0.0 <= learning_rate(step, settings(decay, warmup, steps)) <= 2.0 for step in range(1, steps + 1))


def test_only_these_decays() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'cosine'?"):
        Config.build({"training": {"decay": "cosin"}})
