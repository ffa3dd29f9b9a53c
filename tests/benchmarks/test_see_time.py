"""benchmarks/see_time.py with a tiny BERT and without BertViz; times are not checked."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from small_runs import benchmark
from tiny_transformers import make


@pytest.fixture(scope="module")
def see_time() -> ModuleType:
    return benchmark("see_time")


@pytest.mark.slow
def test_all_ways_but_bertviz_run(see_time: ModuleType, tmp_path: Path) -> None:
    make("bert", tmp_path / "model")
    page = tmp_path / "page.html"
    ways = see_time.commands(tmp_path / "model", page)
    del ways["head_view, page"]
    spent = {way: see_time.run(command, tmp_path, page) for way, command in ways.items()}
    assert {way for way, one in spent.items() if one.page} == {"heedful.see, page", "heedful see, page"}
    rows = {way: see_time.row(way, [spent]) for way in spent}
    assert rows["load"]["beyond"] == 0
    assert "heedful see, page" in see_time.table(list(rows.values()))


def test_the_median_is_of_differences_in_one_round(see_time: ModuleType) -> None:
    rounds = [
        {"load": see_time.Spent(load, load / 2, 0), "see": see_time.Spent(see, see / 2, 7)}
        for load, see in ((1.0, 2.0), (10.0, 14.0), (2.0, 4.0))
    ]
    found = see_time.row("see", rounds)
    assert (found["seconds"], found["beyond"], found["cpu_beyond"], found["page"]) == (4.0, 2.0, 1.0, 7)


def test_a_process_that_fails_ends_the_run(see_time: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="ZeroDivisionError"):
        see_time.run([see_time.sys.executable, "-c", "1 / 0"], tmp_path, tmp_path / "page.html")


def test_forty_words(see_time: ModuleType) -> None:
    assert sum(word.isalpha() for word in see_time.TEXT.split()) == 40
