"""benchmarks/pronouns.py: medians over seeds, and a run of a few steps."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from small_runs import benchmark

from heedful.demo.pronouns import EncoderHead, PronounScores


@pytest.fixture(scope="module")
def pronouns() -> ModuleType:
    return benchmark("pronouns")


def report(seed: int, value: float) -> SimpleNamespace:
    scores = [PronounScores("", EncoderHead(seed, i + 1), value + i, 1, 2, 3) for i in range(3)]
    return SimpleNamespace(seed=seed, scores=scores, nearest=(50.0, 49.0), decoder=(value, 2 * value), seconds=value)


def test_medians_over_seeds(pronouns: ModuleType) -> None:
    lines = pronouns.table([report(1, 10), report(2, 40), report(3, 20)])
    medians = [line.split()[-4:] for line in lines if line.startswith("median, ")]
    assert medians == [["20.0", "1.0", "2.0", "3.0"], ["21.0", "1.0", "2.0", "3.0"], ["22.0", "1.0", "2.0", "3.0"]]
    assert lines[2].split()[:6] == ["seed", "2,", "layer", "2,", "head", "1"]
    assert lines[-1] == "seconds: 10.0, 40.0, 20.0; median 20.0"


@pytest.mark.slow
def test_a_short_run(
    pronouns: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--out", tmp_path / "runs", "--seeds", 4, "--fast", "--steps", 3, "--set", "model.width=16"]
    monkeypatch.setattr(sys, "argv", ["pronouns.py", *map(str, options)])
    pronouns.main()
    assert "median, all heads" in capsys.readouterr().out
    record = json.loads((tmp_path / "runs" / "4" / "demo.json").read_text(encoding="utf-8"))
    assert (record["seed"], record["steps"]) == (4, 3)
