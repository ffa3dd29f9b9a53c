"""The simulated cluster does what can be worked out by hand; the benchmark of files runs on a few rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from small_runs import benchmark


@pytest.fixture(scope="module")
def simulation() -> ModuleType:
    return benchmark("bulk_simulation")


def steady(simulation: ModuleType, workers: int, **changes: float) -> object:
    """A cluster without failures and slow workers, but for the changes."""
    return simulation.Cluster(workers, **{"hours_to_failure": 0, "slow_share": 0, **changes})


@pytest.mark.parametrize("way", ["shards", "queue", "copies"])
def test_without_failures_the_work_is_divided(simulation: ModuleType, way: str) -> None:
    outcome = simulation.simulate(steady(simulation, 4), [10.0] * 8, way)
    assert (outcome.seconds, outcome.lost, outcome.failures) == (20.0, 0.0, 0)
    assert simulation.simulate(steady(simulation, 4), [10.0] * 9, way).seconds == 30.0


def test_a_slow_worker_delays_shards_and_hardly_a_queue(simulation: ModuleType) -> None:
    units = [1.0] * 100
    seconds = {}
    for seed in range(100):  # until one of the two workers is slow
        cluster = steady(simulation, 2, slow_share=0.3)
        seconds = {way: simulation.simulate(cluster, units, way, seed).seconds for way in ("shards", "queue")}
        if seconds["queue"] == pytest.approx(67, abs=1):
            break
    assert seconds["shards"] == 100.0


def test_a_copy_ends_a_unit_that_a_slow_worker_has(simulation: ModuleType) -> None:
    for seed in range(100):
        cluster = steady(simulation, 2, slow_share=0.3, slow_speed=0.1)
        queue = simulation.simulate(cluster, [10.0, 10.0], "queue", seed)
        if queue.seconds == 100.0:
            break
    copies = simulation.simulate(cluster, [10.0, 10.0], "copies", seed)
    assert (queue.seconds, copies.seconds, copies.lost) == (100.0, 20.0, 20.0)


@pytest.mark.parametrize("way", ["shards", "queue", "copies"])
def test_failures_lose_work_and_the_same_seed_gives_the_same(simulation: ModuleType, way: str) -> None:
    cluster = steady(simulation, 4, hours_to_failure=0.01)
    once, again = (simulation.simulate(cluster, [10.0] * 40, way, 3) for _ in range(2))
    assert once == again
    assert once.failures > 0
    assert once.lost > 0
    assert once.seconds > 100.0


def test_the_spread_of_measured_units(simulation: ModuleType, tmp_path: Path) -> None:
    journal = tmp_path / "1-of-1.jsonl"
    lines = [{"begun": "a"}, {"unit": "a", "rows": 10, "seconds": 1.0}, {"unit": "b", "rows": 30, "seconds": 9.0}]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert simulation.read_spread([str(journal)]) == pytest.approx([0.5, 1.5])
    assert sum(simulation.SPREAD) / len(simulation.SPREAD) == pytest.approx(1, abs=0.005)


@pytest.mark.slow
def test_files_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, out = benchmark("bulk"), tmp_path / "out.json"
    arguments = ["--rows", "20", "--rounds", "2", "--units", "2", "--device", "cpu", "--json", str(out)]
    monkeypatch.setattr(sys, "argv", ["bulk.py", *arguments])
    files.main()
    result = json.loads(out.read_text(encoding="utf-8"))["jsonl"]
    assert len(result["unit CPU seconds"]) == 4
    assert result["bytes a row out"] > result["bytes a row in"] > 50
    assert "rows per CPU second" in capsys.readouterr().out
