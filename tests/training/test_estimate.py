"""What a run would take."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import copies, write_pairs
from small_runs import small

from heedful.data import PairList
from heedful.training import Inputs, Reporter, estimate_run


def test_what_is_counted_is_what_training_would_see(tmp_path: Path) -> None:
    settings = small(training={"steps": 400, "accumulate": 2})
    found = estimate_run(Inputs((PairList(copies()),)), settings)
    assert (found.pairs, found.valid_pairs) == (283, 6)
    assert found.vocabularies == (12, 12)
    assert found.steps == 400
    assert found.steps_per_epoch == 5  # 283 pairs, 32 in a batch, two batches in a step
    assert found.seconds == 400 * found.seconds_per_step > 0
    assert found.seconds_per_epoch == 5 * found.seconds_per_step
    assert found.tokens_per_second > 0
    assert found.bytes_at_most > 2**20
    assert found.weights > 1000
    # the best weights; and a checkpoint: the model, AdamW's two, the best
    assert found.bytes_kept == 5 * 4 * found.weights
    more = estimate_run(Inputs((PairList(copies()),)), small(training={"ema": 0.9, "average": 3}))
    assert more.bytes_kept == (4 + 3 + 4 + 1) * 4 * more.weights


class Slow:
    """A clock by which every look takes some seconds."""

    def __init__(self, seconds: float) -> None:
        self.now, self.seconds = 0.0, seconds

    def perf_counter(self) -> float:
        self.now += self.seconds
        return self.now


class Heard(Reporter):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.done: list[tuple[int, str]] = []

    def log(self, message: str) -> None:
        self.said.append(message)

    def preparing(self, done: int, what: str) -> None:
        self.done.append((done, what))


@pytest.mark.parametrize(("seconds", "measured"), [(0.01, 13), (4.0, 4), (100.0, 2)])
def test_slow_steps_are_said_and_are_fewer(monkeypatch: pytest.MonkeyPatch, seconds: float, measured: int) -> None:
    heard = Heard()
    monkeypatch.setattr("heedful.training.estimate.time", Slow(seconds))
    found = estimate_run(Inputs((PairList(copies()),)), small(), reporter=heard)
    assert found.seconds_per_step == pytest.approx(seconds)
    at = heard.said.index("measuring 13 steps, the first with the largest batch")
    assert " weights, " in heard.said[at - 1]
    steps = [done for done, what in heard.done if what == ("step measured" if done == 1 else "steps measured")]
    assert steps == list(range(1, measured + 1))
    short = [] if measured == 13 else [f"{measured} steps are measured, enough for steps as slow as these"]
    assert heard.said[at + 1 :] == short


def test_the_command_line_writes_nothing(tmp_path: Path, heedful_cli: Callable[..., Any]) -> None:
    pairs = write_pairs(tmp_path / "pairs.tsv", copies())
    sets = [part for name in ("model.width=8", "model.embedding=4") for part in ("--set", name)]
    done = heedful_cli("train", pairs, "--out", tmp_path / "m", "--dry-run", "--json", *sets)
    assert done.code == 0
    assert json.loads(done.out)["pairs"] == 283
    done = heedful_cli("train", pairs, "--out", tmp_path / "m", "--dry-run", *sets)
    assert done.err.endswith(" on cpu\nmeasuring 13 steps, the first with the largest batch\n")
    assert [line.split("  ")[0] for line in done.out.splitlines()] == [
        "pairs",
        "tokens",
        "vocabularies",
        "weights",
        "memory",
        "speed",
        "one epoch",
        "expected",
        "at most",
    ]
    assert not (tmp_path / "m").exists()
    done = heedful_cli("train", pairs, "--out", tmp_path / "m", "--dry-run", "--resume")
    assert (done.code, "leave out --resume and --init" in done.err) == (2, True)
