"""benchmarks/antecedent.py: which cases it selects, by which rule, and a run of a few steps."""

from __future__ import annotations

import sys
from itertools import islice
from types import ModuleType

import numpy as np
import pytest
import torch
from small_runs import benchmark

from heedful.data.hindi import SentenceSide


@pytest.fixture(scope="module")
def antecedent() -> ModuleType:
    return benchmark("antecedent")


# The animal didn't cross the street because it was too wide
WIDE = SentenceSide(
    "The animal didn't cross the street because it was too wide",
    "जानवर ने सड़क पार नहीं की क्योंकि वह बहुत ज़्यादा चौड़ी थी",
    ((0, 0), (1, 0), (10, 10), (8, 11)),
    ((7, 5),),
)


def test_which_noun_is_meant(antecedent):
    (case,) = antecedent.cases(WIDE)
    assert (case.pronoun, case.noun, case.kind, case.nouns) == (7, 5, "object", 2)
    assert (case.agreeing, case.own) == (10, (10,))
    (case,) = antecedent.cases(WIDE._replace(antecedents=((7, 1),)))
    assert (case.noun, case.kind) == (1, "subject")


def test_other_cases(antecedent):
    side = SentenceSide("The goat will stop and it will swim", "", (), ((5, 1),))
    (case,) = antecedent.cases(side)
    assert (case.kind, case.nouns, case.agreeing) == ("carried on", 1, None)
    # neither other pronouns, nor an `it` that stands for another one
    assert antecedent.cases(side._replace(source="The girl will stop and she will swim")) == []
    assert antecedent.cases(SentenceSide("It will stop and it will swim", "", (), ((4, 0),))) == []


@pytest.mark.slow
def test_the_corpus_has_both_alike(antecedent):
    found = [case for side in islice(antecedent.with_it(1, "train", 8, 16), 150) for case in antecedent.cases(side)]
    kinds = [case.kind for case in found]
    assert len(found) >= 150
    assert 0.35 < kinds.count("subject") / (kinds.count("subject") + kinds.count("object")) < 0.65
    for case in found:
        words = case.side.source.split()
        assert words[case.pronoun].lower() == "it"
        assert case.noun < case.pronoun
        if case.agreeing is not None:  # what shows the gender is said of `it`, after it
            assert min(case.own) > case.pronoun


def test_as_many_of_each_kind(antecedent):
    subject = WIDE._replace(antecedents=((7, 1),))
    carried = SentenceSide("The goat will stop and it will swim", "", (), ((5, 1),))
    endless = iter([subject, subject, carried, subject, WIDE, carried, WIDE, WIDE])
    assert antecedent.balanced(endless, 2) == [subject, subject, carried, WIDE, carried, WIDE]
    assert list(endless) == [WIDE]  # it stops when it has enough


def test_same_gender(antecedent):
    assert antecedent.same_gender(WIDE) is False  # जानवर is masculine, सड़क feminine
    same = WIDE._replace(source=WIDE.source.replace("animal", "cow"))
    assert antecedent.same_gender(same) is True
    assert antecedent.same_gender(SentenceSide("The goat will stop and it will swim", "", (), ((5, 1),))) is None


def test_marked_sentences_are_a_share_and_their_genders_balanced(antecedent, monkeypatch):
    cow = WIDE._replace(source=WIDE.source.replace("animal", "cow"))
    monkeypatch.setattr(antecedent, "with_it", lambda *_: iter([cow, WIDE, WIDE, WIDE]))
    pairs = antecedent.corpus(1, marked=4, others=18, share=0.4)
    # 4 sentences are 6 when the one whose nouns are alike is repeated; 12 of 30 are 40 %
    assert len(pairs) == 18 + 2 * 6
    assert [source for source, _ in pairs[18:]].count(cow.source) == 6


def test_the_rule(antecedent):
    row = np.array([[[0.1, 0.4, 0.5]], [[0.3, 0.3, 0.2]]], dtype=np.float32)  # two layers of one head
    before = row.copy()
    assert antecedent.right(row, 1, ()).tolist() == [[False], [False]]
    assert antecedent.right(row, 1, (2,)).tolist() == [[True], [False]]
    assert antecedent.right(row, 1, (0, 2)).tolist() == [[True], [True]]
    assert np.array_equal(row, before)


def test_the_best_head_of_one_half_is_measured_on_the_other(antecedent):
    given = [*antecedent.cases(WIDE), *antecedent.cases(WIDE._replace(antecedents=((7, 1),)))] * 2
    assert antecedent.halves(given).tolist() == [True, True, False, False]
    # the first two choose layer 2, head 1, which knows of the others only the last; layer 1, head 1 knows both
    rule = np.zeros((4, 2, 2), dtype=bool)
    rule[[0, 1, 3], 1, 0] = True
    rule[[2, 3], 0, 0] = True
    lines = antecedent.told("inside", given, antecedent.Found(rule, np.zeros_like(rule)))
    assert lines == [
        "inside: layer 2, head 1 (100.0% on the half it was chosen on)",
        "  on the other half: 50.0% of 2; by antecedent: subject 100.0% (1), object 0.0% (1)",
        "  of all positions: 0.0%",
    ]
    assert antecedent.baselines(given)[1:] == [
        "where both could be meant: always the subject 50.0%, always the nearest noun 50.0%",
        "everywhere: always the subject 50.0%",
    ]


@pytest.mark.slow
def test_a_short_run(antecedent, tmp_path, monkeypatch, capsys):
    usual = antecedent.with_it
    monkeypatch.setattr(antecedent, "with_it", lambda seed, split, low, high: usual(seed + 7, "train", low, high))
    monkeypatch.setattr(antecedent, "VALID", 2)
    sizes = ["--marked", "12", "--others", "20", "--test", "2"]
    sets = ["training.steps=2", "model.width=8", "model.inner=8", "model.layers=2", "training.warmup=1"]
    sets.append(f"training.threads={torch.get_num_threads()}")
    options = [word for setting in sets for word in ("--set", setting)]
    monkeypatch.setattr(sys, "argv", ["antecedent.py", "--out", str(tmp_path / "m"), *sizes, *options])
    antecedent.main()
    printed = capsys.readouterr().out
    assert "6 test sentences, " in printed
    assert "inside, row of `it`: layer " in printed
    assert "across, row of the Hindi adjective: layer " in printed
