"""benchmarks/alignment_sets.py: how text is split into words, and the printed row; the measurements are not run."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
from conftest import ROOT

from heedful.alignment import HEURISTICS


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("aligners")


@pytest.mark.parametrize(
    ("language", "sentence", "words"),
    [
        ("fr", "L’homme mange 1,5 pomme.", "l' homme mange 1,5 pomme ."),
        ("en", "It's the dog's bone, isn't it?", "it 's the dog 's bone , isn 't it ?"),
        ("hi", "वह हिन्दी बोलती है।", "वह हिन्दी बोलती है ।"),
    ],
)
def test_words(bench: ModuleType, language: str, sentence: str, words: str) -> None:
    assert importlib.import_module("alignment_sets").cut(sentence, language) == words


def test_a_set_is_measured(bench: ModuleType) -> None:
    sets = importlib.import_module("alignment_sets")
    pairs = [("das haus", "the house"), ("das buch", "the book"), ("ein buch", "a book")]
    gold = sets.read_gold(["0-0 1-1", "0-0 1-1", "0-0 1-1"], [(2, 2)] * 3)
    row = bench.measure(sets.AlignmentSet("de-en 3", pairs, gold, []), "ibm")
    assert set(row["error_rate"].values()) == {0.0}
    assert bench.line({**row, "seconds": 2.4}) == "| de-en 3 | 3 | ibm" + " | **0.0**" * len(HEURISTICS) + " | 2 |"
