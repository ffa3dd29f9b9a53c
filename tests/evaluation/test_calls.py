"""`heedful.evaluate`, `compare` and `report` from Python: what the commands do, on translators, folders and lists."""

from __future__ import annotations

import inspect
import json
import pkgutil
from pathlib import Path

import pytest
from conftest import copies
from random_translators import random_folder, random_translator

import heedful
from heedful.alignment import Gold, score
from heedful.errors import ConfigError, DataError
from heedful.evaluation.systems import TestSet, read_test_set
from heedful.metrics import bleu, differences, extract_stats, intervals

PAIRS = copies(24, seed=5, longest=8)
SOURCES, TARGETS = (list(side) for side in zip(*PAIRS, strict=True))
SPOILED = [" ".join(["Z", *text.split()[1:]]) if i % 3 == 0 else text for i, text in enumerate(TARGETS)]


def test_evaluate_a_translator_a_folder_and_their_translations(tmp_path: Path) -> None:
    folder = random_folder(tmp_path / "m", "rnn")
    translator = heedful.load(folder, "cpu")
    texts = [one.text for one in translator.translate(SOURCES, beam=2, split=False)]
    found = heedful.evaluate(translator, PAIRS, heedful.Decoding(beam=2), resamples=50)
    assert found.outputs[0].texts == texts
    assert found.scores.total.bleu == pytest.approx(bleu(texts, TARGETS))
    assert found.intervals == intervals(extract_stats(texts, TARGETS), 50)
    assert found.differences == {}
    for same in (folder, str(folder), texts):
        again = heedful.evaluate(same, PAIRS, heedful.Decoding(beam=2), resamples=50)
        assert (again.scores, again.intervals) == (found.scores, found.intervals)


def test_evaluate_against_another() -> None:
    found = heedful.evaluate(SPOILED, PAIRS, against=TARGETS, test="bootstrap", resamples=50, seed=3)
    wanted = differences(extract_stats(SPOILED, TARGETS), extract_stats(TARGETS, TARGETS), "bootstrap", 50, 3)
    assert found.differences == wanted
    plain = json.loads(json.dumps(found.plain()))
    assert plain["against"]["bleu"]["verdict"] == wanted["bleu"].verdict
    assert any("paired bootstrap" in line for line in found.notes())
    with pytest.raises(ConfigError, match="resamples") as error:
        heedful.evaluate(SPOILED, PAIRS, against=TARGETS, test="bootstrap", resamples=0)
    assert "--" not in str(error.value)


def test_pairs_may_have_several_references_and_empty_sides() -> None:
    tests = TestSet.of([("a b", "A B", "B A"), ("", "X"), ("c", ["C", "D"]), ("d", "")])
    assert [line.references for line in tests.rows] == [("A B", "B A"), ("C", "D")]
    assert tests.skipped == 2
    assert heedful.evaluate(["B A", "", "D", ""], tests, resamples=0).scores.total.exact == 100
    for pairs, words in (([], "empty"), ([("a", "")], "no line of 1"), ([(1, "a")], "pair 1")):
        with pytest.raises(DataError, match=words):
            TestSet.of(pairs)


@pytest.mark.parametrize("count", [23, 25])
def test_translations_are_one_for_each_pair(count: int) -> None:
    with pytest.raises(DataError, match=f"{count} translations for the 24 lines"):
        heedful.evaluate((TARGETS * 2)[:count], PAIRS)


def test_settings_are_named_and_not_options(tmp_path: Path) -> None:
    for wrong in ({"pairs": [tmp_path], "source": tmp_path}, {"source": tmp_path}, {}):
        with pytest.raises(ConfigError) as error:
            read_test_set(**wrong)
        assert "--" not in str(error.value)


def test_compare() -> None:
    found = heedful.compare(SPOILED, TARGETS, PAIRS, by="bleu", top=3, resamples=50)
    assert (found.comparison.losses, found.comparison.wins) == (8, 0)
    assert [sentence.second for sentence in found.sentences] == [s.references[0] for s in found.sentences]
    assert len(found.sentences) == 3
    assert all(sentence.first_score < sentence.second_score for sentence in found.sentences)
    with pytest.raises(ConfigError, match="unknown metric 'blue'"):
        heedful.compare(SPOILED, TARGETS, PAIRS, by="blue")


def test_report_scores_the_links_of_models_and_writes_a_page(tmp_path: Path) -> None:
    translator = random_translator("rnn")
    gold = [frozenset((i, i) for i in range(len(source.split()))) for source in SOURCES]
    page = tmp_path / "report.html"
    systems = {"model": translator, "file": SPOILED}
    made = heedful.report(systems, PAIRS, page, gold=Gold(gold, gold), top=2, resamples=0, title="A title")
    assert [one.model.title for one in made.systems] == ["model", "file"]
    alignment = made.systems[0].model.alignment
    wanted = score([one.pairs for one in translator.align(SOURCES, TARGETS)], gold)
    assert alignment is not None
    assert (alignment.error_rate, alignment.pairs) == (pytest.approx(wanted.error_rate), 24)
    assert made.systems[1].model.alignment is None
    assert [trace is None for trace in made.sentences[0].traces] == [False, True]
    text = page.read_text(encoding="utf-8")
    assert "A title" in text
    assert made.sentences[0].source in text
    assert made.systems[1].against.keys() == {"bleu", "chrf", "ter", "exact"}
    assert heedful.report([SPOILED], PAIRS, top=0, resamples=0).sentences == ()
    with pytest.raises(ConfigError, match="at least one"):
        heedful.report([], PAIRS)


def test_systems_are_called_by_their_names_or_folders(tmp_path: Path) -> None:
    one, other = (random_folder(tmp_path / name / "model", "fixed") for name in "ab")
    titles = [result.model.title for result in heedful.report([one, other, TARGETS], PAIRS, top=0, resamples=0).systems]
    assert titles == [str(one), str(other), "system 3"]
    made = heedful.report({"first": one, "second": other}, PAIRS[:3], top=0, resamples=0)
    assert [result.model.title for result in made.systems] == ["first", "second"]


def test_the_calls_stay_functions_whatever_is_imported() -> None:
    """A subpackage of the same name would take their place in the package."""
    names = ("align", "compare", "evaluate", "report", "select_readout")
    for module in pkgutil.iter_modules(heedful.__path__):
        assert module.name not in names
    assert all(inspect.isfunction(getattr(heedful, name)) and getattr(heedful, name).__doc__ for name in names)
