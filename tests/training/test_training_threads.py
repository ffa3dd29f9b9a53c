"""The threads of a run: measured on steps that leave no trace, recorded, and used again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from conftest import copies
from small_runs import small

from heedful.data import PairList
from heedful.models.device import ThreadTimes
from heedful.training import Inputs, Reporter, estimate_run, run_training
from heedful.training import device_setup as module

PAIRS = Inputs((PairList(copies()),))


class Messages(Reporter):
    def __init__(self) -> None:
        self.said: list[str] = []

    def log(self, message: str) -> None:
        self.said.append(message)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A machine where the number of threads is open and 2 are faster; the steps of the measurement are counted."""
    steps: list[int] = []

    def fastest(work: object, quick: object) -> ThreadTimes:
        for each in (work, quick, work):
            assert callable(each)
            each()
            steps.append(1)
        torch.rand(3)  # whatever else it draws
        return ThreadTimes(2, {1: 0.5, 2: 0.25})

    monkeypatch.setattr(module, "may_choose", lambda: True)
    monkeypatch.setattr(module, "fastest_threads", fastest)
    return steps


def settings(threads: int, **more: object) -> dict[str, dict[str, object]]:
    return small(training={"steps": 6, "threads": threads, **more})


def recorded(out: Path) -> object:
    newest = max((out / "checkpoints").iterdir())
    return json.loads((newest / "run.json").read_text(encoding="utf-8"))["threads"]


def weights(out: Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


def test_a_measured_run_has_the_bits_of_one_that_is_told_the_number(tmp_path: Path, measured: list[int]) -> None:
    messages = Messages()
    before = torch.get_num_threads()
    run_training(PAIRS, tmp_path / "measured", settings(0), reporter=messages)
    assert len(measured) == 3
    run_training(PAIRS, tmp_path / "told", settings(2))
    assert len(measured) == 3  # a number that is set is not measured
    assert weights(tmp_path / "measured") == weights(tmp_path / "told")
    assert recorded(tmp_path / "measured") == recorded(tmp_path / "told") == 2
    assert torch.get_num_threads() == before
    (line,) = [line for line in messages.said if "threads" in line]
    assert line.startswith("using 2 threads")


def test_a_resumed_run_uses_the_number_it_began_with(
    tmp_path: Path, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []
    run_training(PAIRS, tmp_path / "m", settings(0))
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    run_training(PAIRS, tmp_path / "m", {"training": {"steps": 8}}, resume=True)
    assert len(measured) == 3
    assert used[0] == 2
    run_training(PAIRS, tmp_path / "m", {"training": {"steps": 9, "threads": 1}}, resume=True)
    assert 1 in used


def test_a_dry_run_measures_too(measured: list[int]) -> None:
    found = estimate_run(PAIRS, settings(0))
    assert len(measured) == 3
    assert found.threads == 2
