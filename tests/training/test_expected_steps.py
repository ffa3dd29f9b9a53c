"""When a run is expected to end, and when its pairs are too few: rules that were measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import copies
from small_runs import small

from heedful.data import PairList
from heedful.training import Inputs, Progress, Reporter, estimate_run, run_training
from heedful.training.estimate import expected_steps, too_little_data
from heedful.training.setup import apply_preset


@pytest.mark.parametrize(
    ("pairs", "training", "expected"),
    [
        (1_000, {}, 7_000),  # 3,000, and eight validations 500 steps apart without a better one
        (1_000, {"steps": 500}, 500),
        (1_000, {"valid_every": 100}, 3_800),
        (10_000, {}, 5_000),  # all of them
        (10_000, {"steps": 9_000}, None),  # nobody knows
        (1_000_000, {}, None),
        (1_000, {"metric": "loss"}, None),
    ],
)
def test_the_expected_end(pairs: int, training: dict[str, object], expected: int | None) -> None:
    assert expected_steps(apply_preset({"training": training}, pairs)[0], pairs) == expected
    assert expected_steps(apply_preset({"model": {"family": "transformer"}}, pairs)[0], pairs) is None


def texts(words: int, types: int) -> list[str]:
    return [f"w{number % types}" for number in range(words)]


def test_words_that_come_too_seldom() -> None:
    message = too_little_data(1_000, {"source": texts(4000, 500), "target": texts(4000, 1600)})
    assert "target word" in message
    assert "2.5 times" in message
    assert too_little_data(1_000, {"source": texts(4000, 500), "target": texts(4000, 700)}) == ""
    assert "300 pairs" in too_little_data(300, {"source": texts(4000, 500), "target": texts(4000, 500)})
    assert too_little_data(100_000, {"source": texts(10, 10), "target": texts(10, 10)}) == ""


class Ear(Reporter):
    def __init__(self) -> None:
        self.warned: list[str] = []
        self.at: list[Progress] = []

    def warn(self, message: str) -> None:
        self.warned.append(message)

    def progress(self, progress: Progress) -> None:
        self.at.append(progress)


def test_a_run_warns_and_says_when_it_may_end(tmp_path: Path) -> None:
    ear = Ear()
    inputs = Inputs((PairList(copies()),))
    run_training(
        inputs, tmp_path / "m", small(training={"steps": 10_000, "valid_every": 10, "patience": 2}), reporter=ear
    )
    assert ["283 pairs" in warning for warning in ear.warned] == [True]
    assert ear.at[0].expected == 3_020
    ear = Ear()
    found = estimate_run(inputs, small(training={"steps": 10_000, "valid_every": 10, "patience": 2}), reporter=ear)
    assert (found.expected_steps, len(ear.warned)) == (3_020, 1)
    assert found.expected_seconds == 3_020 * found.seconds_per_step


def test_the_end_moves_with_the_best_validation(tmp_path: Path) -> None:
    """A run that still gets better after the expected end goes on at least until its patience is used up."""
    from types import SimpleNamespace

    from heedful.training import Validation
    from heedful.training.loop import TrainingRun

    run = TrainingRun.__new__(TrainingRun)
    run.expected, run.config = 100, SimpleNamespace(patience=2, valid_every=10, steps=500)  # type: ignore[assignment]
    for best, expected in ((None, 100), (50, 100), (90, 110), (300, 320), (495, 500)):
        run.position = SimpleNamespace(best=best and Validation(best, 1.0, 0.5))  # type: ignore[assignment]
        assert run._expected() == expected
