"""benchmarks/watch.py with few channels on the CPU; times are not checked."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
from small_runs import benchmark


@pytest.fixture(scope="module")
def watching() -> ModuleType:
    return benchmark("watch")


def test_a_small_run(watching: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "watch.json"
    watching.main(["--small", "--lengths", "6", "--rounds", "1", "--json", str(file)])
    rows = {row["way"]: row for row in json.loads(file.read_text(encoding="utf-8"))["rows"]}
    assert list(rows) == ["forward", "watch", "summary", "top 8", "eager", "launched", "launched, top 8"]
    layer = 32 * 6  # numbers of one kind for every head and token
    assert rows["summary"]["held"] * 2**20 == 22 * 4 * (layer + layer)
    # Positions in 8 bytes and weights in 4 of the top 8, and the mass that they cover.
    assert rows["top 8"]["held"] * 2**20 == 22 * (4 * 2 * layer + 12 * 8 * layer + 4 * layer)
    assert rows["eager"]["held"] * 2**20 == 22 * 4 * layer * 6
    assert rows["forward"]["times"] == 1
    assert "6 tokens" in capsys.readouterr().out


def test_weights_are_shared(watching: ModuleType) -> None:
    one, two = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
    watching.share_weights(one, two)
    assert two.weight is one.weight


def test_what_is_held_counts_once(watching: ModuleType) -> None:
    x = torch.zeros(1 << 18)
    assert watching.results([x, (x[:5], torch.zeros(1 << 18)), None]) == 2
    most, result = watching.peak_of_cpu(lambda: torch.ones(1 << 18) + torch.ones(1 << 18))
    assert most == 3
    assert result.numel() == 1 << 18
