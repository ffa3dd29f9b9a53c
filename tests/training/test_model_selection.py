"""What is kept of a run: the best by the metric asked for, averages, and a rate that falls on a plateau."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded_runs import Crash, Ear, go, weights

from heedful.decoding import greedy
from heedful.interop.folder import read_model
from heedful.models import Network
from heedful.training import Validation, checkpointing
from heedful.training.callbacks import MetricsFile
from heedful.training.checkpointing import newest

EVERYTHING: dict[str, dict[str, Any]] = {
    "text": {"kind": "bpe", "size": 30, "regularise": 0.3},
    "training": {
        "ema": 0.9,
        "average": 3,
        "accumulate": 2,
        "rdrop": 1.0,
        "decay": "plateau",
        "plateau": 1,
        "valid_every": 5,
        "patience": 50,
        "metric": "chrf",
    },
}


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def scores(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float, float]]:
    """What validations find, one after the other: BLEU, loss, chrF."""
    found: list[tuple[float, float, float]] = []

    def measure(self: object, model: Network, step: int) -> Validation:
        bleu, loss, chrf = found.pop(0) if len(found) > 1 else found[0]
        return Validation(step, loss, 0.5, bleu, chrf)

    monkeypatch.setattr(checkpointing.Validator, "__call__", measure)
    return found


def test_where_the_loss_decides_only_the_samples_are_translated(
    tmp_path: Path, heedful_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    translated: list[int] = []

    def count(model: Any, memory: Any, limits: list[int]) -> Any:
        translated.append(len(limits))
        return greedy(model, memory, limits)

    monkeypatch.setattr("heedful.training.checkpointing.greedy", count)
    ear = go(tmp_path / "m", training={"metric": "loss"})
    assert translated == [2, 2]
    assert [len(v.samples) for v in ear.validations] == [2, 2]
    assert [v.bleu for v in ear.validations] == [None, None]
    assert str(ear.validations[1]) == f"loss {ear.validations[1].loss:.3f}"
    measured = [r for r in records(tmp_path / "m") if "valid_loss" in r]
    assert [r["best"] for r in measured] == [True, True]
    assert not any("valid_bleu" in r for r in measured)
    assert "on the validation pairs: loss" in heedful_cli("info", tmp_path / "m").out
    ear = go(tmp_path / "m", resume=True, training={"metric": "loss", "steps": 60})
    assert [v.step for v in ear.validations] == [60]


@pytest.mark.parametrize(("metric", "step"), [("bleu", 10), ("loss", 20), ("chrf", 30)])
def test_the_best_by_each_metric(tmp_path: Path, scores: list[Any], metric: str, step: int) -> None:
    scores += [(30.0, 3.0, 30.0), (20.0, 1.0, 20.0), (10.0, 2.0, 50.0), (1.0, 9.0, 1.0)]
    go(tmp_path / "m", training={"metric": metric, "valid_every": 10, "steps": 40})
    notes = read_model(tmp_path / "m").notes
    assert notes["step"] == step
    assert [r["best"] for r in records(tmp_path / "m") if "best" in r].count(True) == {10: 1, 20: 2, 30: 2}[step]


def test_the_rate_is_halved_when_nothing_gets_better(tmp_path: Path, scores: list[Any]) -> None:
    scores += [(20.0, 1.0, 0.0), (10.0, 2.0, 0.0), (10.0, 2.0, 0.0), (30.0, 2.0, 0.0), (1.0, 2.0, 0.0)]
    settings = {"decay": "plateau", "plateau": 2, "valid_every": 5, "warmup": 0, "rate": 0.016, "steps": 40}
    go(tmp_path / "m", training=settings)
    rates = {r["step"]: r["rate"] for r in records(tmp_path / "m") if "rate" in r}
    # Best at 5; none at 10 and 15: halved. Best at 20; none at 25 and 30, 35 and 40.
    assert [rates[step] for step in (5, 15, 16, 30, 31, 40)] == [0.016, 0.016, 0.008, 0.008, 0.004, 0.004]


def test_the_last_validations_are_averaged_if_that_is_better(tmp_path: Path, scores: list[Any]) -> None:
    scores += [(10.0, 1.0, 0.0), (10.0, 1.0, 0.0), (10.0, 1.0, 0.0), (10.0, 1.0, 0.0), (40.0, 1.0, 0.0)]
    go(tmp_path / "m", training={"average": 3, "valid_every": 10, "steps": 40, "keep": 9})
    checkpoints = [read_model(tmp_path / f"m/checkpoints/{step:09d}").model.state_dict() for step in (20, 30, 40)]
    found = read_model(tmp_path / "m").model.state_dict()
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, torch.stack([c[name] for c in checkpoints]).mean(0))
    assert records(tmp_path / "m")[-1]["final"]


def test_a_worse_average_is_not_taken(tmp_path: Path, scores: list[Any]) -> None:
    scores += [(10.0, 1.0, 0.0), (50.0, 1.0, 0.0), (10.0, 1.0, 0.0), (10.0, 1.0, 0.0), (40.0, 1.0, 0.0)]
    go(tmp_path / "m", training={"average": 3, "valid_every": 10, "steps": 40})
    assert read_model(tmp_path / "m").notes["step"] == 20


def test_the_moving_average_is_what_is_measured_and_kept(tmp_path: Path) -> None:
    go(tmp_path / "m", training={"ema": 0.9, "steps": 20, "valid_every": 20})
    checkpoint, _ = newest(tmp_path / "m")
    assert checkpoint is not None
    assert checkpoint.average is not None
    found, last = read_model(tmp_path / "m").model.state_dict(), checkpoint.parts.model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in checkpoint.average.items())
    assert not all(torch.equal(found[name], last[name]) for name in checkpoint.average)


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    out = tmp_path_factory.mktemp("everything") / "m"
    go(out, **EVERYTHING)
    return weights(out)


@pytest.mark.slow
@pytest.mark.parametrize("step", [4, 13, 22, 36])
def test_a_crash_changes_nothing_with_everything_on(everything: bytes, tmp_path: Path, step: int) -> None:
    with pytest.raises(Crash):
        go(tmp_path / "m", Ear(crash_at=step), **EVERYTHING)
    go(tmp_path / "m", resume=True, **EVERYTHING)
    assert weights(tmp_path / "m") == everything


class Board:
    """Stands for TensorBoard's writer."""

    def __init__(self, folder: str, purge_step: int | None = None) -> None:
        self.purge_step = purge_step
        self.scalars: list[tuple[str, float, int]] = []

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))

    def flush(self) -> None:
        pass


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(torch)("torch.utils.tensorboard")
    module.SummaryWriter = Board  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)


@pytest.mark.usefixtures("board")
def test_tensorboard_gets_what_the_file_gets(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path, 0)
    metrics.write({"step": 3, "loss": 1.5, "rate": 0.1})
    metrics.write({"step": 4, "valid_bleu": 20.0, "best": True})
    assert metrics.board.scalars == [("train/loss", 1.5, 3), ("train/rate", 0.1, 3), ("valid/bleu", 20.0, 4)]
    assert MetricsFile(tmp_path, 7).board.purge_step == 8
