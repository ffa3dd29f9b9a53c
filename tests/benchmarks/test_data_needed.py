"""The corpora and counts of benchmarks/data_needed.py; its runs are not repeated here."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from types import ModuleType

import pytest
from small_runs import benchmark


@pytest.fixture(scope="module")
def data_needed() -> ModuleType:
    return benchmark("data_needed")


def test_counts_of_one_side(data_needed: ModuleType) -> None:
    found = data_needed.counts(["a b a", "a c"], ["a b", "b d"])
    assert found["words"] == 5
    assert found["types"] == 3
    assert found["once"] == 2
    assert found["unseen"] == 1 / 4
    assert found["rare"] == 1.0
    assert found["unseen_pairs"] == 1 / 2


def test_no_test_sentence_is_in_training(data_needed: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "tatoeba-fra-eng"
    folder.mkdir()
    rows = [f"e{n % 700}\tf{n % 900}" for n in range(2000)]
    (folder / "fra.txt.gz").write_text("\n".join(rows), encoding="utf-8")
    test, training = data_needed.corpus("fra-eng", tmp_path)
    assert len(test) == data_needed.TEST
    assert training
    assert set(chain(*test)).isdisjoint(chain(*training))
