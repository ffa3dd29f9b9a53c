"""`heedful.align` and `heedful.select_readout` from Python: what the commands do."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import copies
from random_translators import random_folder, random_parts, random_translator

import heedful
from heedful.alignment import ROUNDS, Gold, both_directions, score, symmetrize
from heedful.errors import ConfigError, DataError
from heedful.trace import Readout
from heedful.translator import Translator

PAIRS = [pair for pair in copies(60, seed=5) if len(pair[0].split()) > 1][:30]
SOURCES, TARGETS = (list(side) for side in zip(*PAIRS, strict=True))
DIAGONAL = [frozenset((i, i) for i in range(len(source.split()))) for source in SOURCES]


def test_the_statistical_aligner() -> None:
    counted: list[int] = []
    found = heedful.align([*PAIRS, ("", "x")], symmetry="intersection", extra=PAIRS[:3], progress=counted.append)
    both = both_directions(SOURCES, TARGETS, extra=[*PAIRS[:3], ("", "x")])
    links = {row: symmetrize(forward, reverse, "intersection") for row, forward, reverse in both}
    assert found.links[:-1] == [links[row] for row in range(len(SOURCES))]
    assert (found.links[-1], found.symmetry, found.skipped) == (frozenset(), "intersection", {})
    assert sum(counted) == ROUNDS * (len(PAIRS) + 4)


def test_one_model_and_two() -> None:
    one, other = random_translator("rnn"), random_translator("transformer", seed=3)
    pairs = [PAIRS[0], ("", "x"), PAIRS[1]]
    found = heedful.align(pairs, one, weights=True)
    wanted = one.align(SOURCES[:2], TARGETS[:2])
    assert found.links == [wanted[0].pairs, frozenset(), wanted[1].pairs]
    assert found.alignments == [wanted[0], None, wanted[1]]
    assert found.symmetry == ""
    both = heedful.align(PAIRS, one, reverse=other, symmetry="union")
    assert both.links == [a.pairs for a in one.align(SOURCES, TARGETS, reverse=other, symmetry="union")]
    assert (both.symmetry, both.alignments) == ("union", [])
    assert heedful.align(PAIRS, one, reverse=other).symmetry == "product"


def test_pairs_too_long_are_skipped_with_the_reason() -> None:
    short = Translator(random_parts("rnn", max_length=4))
    found = heedful.align([("a b", "A"), ("a " * 9, "A")], short)
    assert list(found.skipped) == [1]
    assert found.links[1] == frozenset()


def test_errors_name_settings() -> None:
    model = random_translator("rnn")
    for wrong in (
        {"reverse": model},
        {"method": "ibn"},
        {"symmetry": "both"},
        {"translator": model, "extra": PAIRS},
        {"translator": model, "symmetry": "union"},
        {"translator": model, "reverse": model, "symmetry": "reverse"},
    ):
        with pytest.raises(ConfigError) as error:
            heedful.align(PAIRS, **wrong)  # type: ignore[arg-type]
        assert "--" not in str(error.value)


@pytest.mark.parametrize("gold", [DIAGONAL, Gold(DIAGONAL, DIAGONAL)], ids=["links", "gold"])
def test_select_a_readout_with_gold(tmp_path: Path, gold: Gold | list[frozenset[tuple[int, int]]]) -> None:
    folder = random_folder(tmp_path / "m", "transformer")
    translator = heedful.load(folder, "cpu")
    found = heedful.select_readout(translator, PAIRS, gold, folder=folder)
    assert found.why_not_saved() == ""
    assert heedful.load(folder, "cpu").readout == found.readout
    # What was measured is what aligning gives, on the half that it was selected on and on the other.
    links = [one.pairs for one in heedful.load(folder, "cpu").align(SOURCES, TARGETS)]
    for half, rate in ((0, found.best.rate), (1, found.best.held_out)):
        assert score(links[half::2], DIAGONAL[half::2]).error_rate == pytest.approx(rate)
    assert found.best.rate <= min(row.rate for row in found.named.values())


def test_select_a_readout_without_gold_saves_nothing_by_itself(tmp_path: Path) -> None:
    folder = random_folder(tmp_path / "m", "rnn")
    found = heedful.select_readout(heedful.load(folder, "cpu"), [*PAIRS, ("", "x")], max_pairs=20)
    assert not (folder / "readout.json").exists()
    assert "statistical aligner" in found.measure
    assert found.halves == (10, 10)
    assert found.skipped == 0
    assert isinstance(found.readout, Readout)
    with pytest.raises(DataError, match="1 of 1 pairs can be read"):
        heedful.select_readout(heedful.load(folder, "cpu"), PAIRS[:1])
