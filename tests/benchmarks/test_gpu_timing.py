"""benchmarks/gpu_timing.py without a GPU: turns, medians, and its import by other benchmarks."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import pytest
import torch
from conftest import ROOT
from small_runs import benchmark

USERS = ("kernels_gpu", "recurrence", "attention_additive", "attention", "watch")


@pytest.fixture(scope="module")
def timing() -> ModuleType:
    return benchmark("gpu_timing")


def test_all_run_in_turns_and_the_median_counts(timing: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0

    class Event:
        at = 0.0

        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = clock

        def elapsed_time(self, end: Event) -> float:
            return end.at - self.at

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    takes = {"one": [5.0, 1.0, 9.0], "two": [2.0, 4.0, 3.0]}
    order: list[str] = []

    def work(name: str) -> None:
        nonlocal clock
        clock += takes[name][order.count(name)]
        order.append(name)

    runs = {name: (lambda name=name: work(name)) for name in takes}
    assert timing.medians(runs, 3) == {"one": 5.0, "two": 3.0}
    assert order == ["one", "two"] * 3


def test_memory_is_what_is_held_beyond_what_was_there(timing: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 3 * 2**20)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: calls.append("reset"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 10 * 2**20)
    assert timing.peak(lambda: calls.append("work") or "done") == (7.0, "done")
    assert calls == ["work", "reset", "work"]  # the first one compiles


@pytest.mark.slow
@pytest.mark.parametrize("name", USERS)
def test_benchmarks_find_it_when_they_are_imported_and_when_they_are_run(name: str) -> None:
    assert benchmark(name).medians.__module__ == "gpu_timing"
    command = [sys.executable, f"benchmarks/{name}.py", "--help"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--rounds" in done.stdout
