"""benchmarks/antecedents.py: paired sentences, when a head is right, the tables; MiniLM if HEEDFUL_MODELS is set."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from small_runs import benchmark
from tiny_transformers import make

from heedful.data.pronouns import PronounExample, generate
from heedful.errors import HeedfulError


@pytest.fixture(scope="module")
def antecedents() -> ModuleType:
    return benchmark("antecedents")


TIRED = PronounExample("The dog did not cross the street because it was too tired", "", (), ((8, 1),), (1, 6))
WIDE = PronounExample("The dog did not cross the street because it was too wide", "", (), ((8, 6),), (1, 6))


def test_a_case(antecedents):
    case = antecedents.case_of(WIDE)
    assert case == ("The dog did not cross the street because it was too wide.", 8, (1, 6), 1)
    assert antecedents.case_of(TIRED).meant == 0


def test_sentences_that_are_no_case(antecedents):
    assert antecedents.case_of(WIDE, {"dog"}) is None  # a person
    assert antecedents.case_of(WIDE._replace(antecedents=((8, 6), (11, 6)))) is None
    assert antecedents.case_of(WIDE._replace(source=WIDE.source.replace("it", "she"))) is None
    assert antecedents.case_of(PronounExample("The street was wide", "", ())) is None


def test_pairs_are_equal_up_to_it_and_of_each_kind(antecedents):
    pairs = antecedents.find_pairs(islice(generate(1, "train"), 20_000), 4)
    assert [pair.kind for pair in pairs] == [0, 1, 2] * 4
    nouns = set()
    for subject, thing, _ in pairs:
        words, others = subject.sentence.split(), thing.sentence.split()
        assert words[: subject.pronoun + 1] == others[: thing.pronoun + 1]
        assert (words[subject.pronoun], subject.meant, thing.meant) == ("it", 0, 1)
        nouns.add(frozenset(words[i] for i in subject.nouns))
    assert len(nouns) == 12


def test_too_few_pairs(antecedents):
    with pytest.raises(HeedfulError, match="animal, thing: 1"):
        antecedents.find_pairs([TIRED, WIDE, TIRED], 2)


def test_right_by_each_rule(antecedents):
    case = antecedents.case_of(WIDE)
    row = np.zeros((1, 4, 15), dtype=np.float32)  # [CLS], 12 words, full stop, [SEP]
    dog, street, because, it = 2, 7, 8, 9
    row[0, 0, street] = 1  # right by all rules
    row[0, 1, [street, it]] = 0.3, 0.7  # `it` itself is no other word
    row[0, 2, [street, because]] = 0.4, 0.6
    row[0, 3, [dog, street, 0]] = 0.2, 0.1, 0.7
    right, lean = antecedents.judge(row, 1, case)
    assert right[:, 0].tolist() == [[True, True, True, False], [True, True, False, False], [True, False, False, False]]
    assert lean[0] == pytest.approx([-1, -0.3, -0.4, 0.1])


def test_rows_are_those_of_it_with_words_summed(antecedents):
    model, tokenizer = make("bert")
    case = antecedents.case_of(TIRED)
    seen = antecedents.heedful.see(model, tokenizer, case.sentence)
    row, first = antecedents.row_of(seen, case)
    assert first == 1
    assert row.shape[-1] == len(case.sentence.split()) + 3  # with [CLS], the full stop and [SEP]
    assert row.sum(-1) == pytest.approx(1, abs=1e-5)


def answers(antecedents: ModuleType, lean: np.ndarray) -> object:
    """Return answers of heads that lean so; the rules are the same.  lean (N, L, H)."""
    meant = np.arange(len(lean))[:, None, None] % 2
    right = (lean > 0) == (meant == 0)
    return antecedents.Answers(np.stack([right] * 3), lean, np.repeat(np.arange(len(lean) // 2) % 3, 2))


def test_halves_hold_whole_pairs_of_every_kind(antecedents):
    first, second = answers(antecedents, np.ones((24, 1, 1))).halves
    assert (first != second).all()
    assert (first[0::2] == first[1::2]).all()
    assert first[:12].tolist() == [True] * 6 + [False] * 6


def test_tables_tell_a_head_that_understands_from_rules(antecedents):
    lean = np.ones((48, 1, 3), dtype=np.float32)  # the second head: always the subject
    lean[:, 0, 2] = -1  # the third: always the nearest noun
    lean[1::2, 0, 0] = -1  # the first: what is meant
    found = answers(antecedents, lean)
    lines = antecedents.accuracy_table(found, (1, 2))
    assert lines[4].startswith(
        "| of the two nouns | 1.1, the best | 100 | 100 (86–100) | 100 (76–100) | 100 (76–100) |"
    )
    assert lines[5].startswith("| of the two nouns | 1.2, of the example | 50 | 50 (")
    rules = antecedents.rule_table(found, (1, 2))
    assert rules[4].startswith("| nearest noun | 1.3 | 100 | 100 (")
    assert rules[5].startswith("| subject | 1.2 | 100 | 100 (")
    assert antecedents.moves(lean)[:, 0].mean(0).tolist() == [1, 0, 0]


def test_wilsons_interval(antecedents):
    assert antecedents.wilson(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert antecedents.wilson(0, 20) == pytest.approx((0, 0.1611), abs=1e-4)


@pytest.mark.slow
def test_minilm(antecedents, tmp_path):
    folder = os.environ.get("HEEDFUL_MODELS")
    if not folder:
        pytest.skip("HEEDFUL_MODELS is not set: the folder that MiniLM is fetched into")
    opened = antecedents.open_transformers(str(antecedents.fetch(antecedents.MINILM, Path(folder))))
    head, lines = antecedents.classic(opened.model, opened.tokenizer)
    assert head == (4, 2)
    assert "it → animal 0.69" in lines[0]
    pairs = antecedents.find_pairs(islice(generate(1, "train"), antecedents.GENERATED), 40)
    found = antecedents.answers(opened.model, opened.tokenizer, pairs)
    right, subject = found.right[0].mean(0), found.lean > 0
    assert right.max() < 0.75  # no head finds the antecedent reliably
    assert subject[:, 2, 0].mean() < 0.05  # 3.1 is the nearest noun
    animal = found.kinds != 2
    assert (subject[animal, 5, 11] == (found.kinds[animal] == 0)).mean() > 0.9  # 6.12 is the animal
    antecedents.draw(antecedents.heedful.see(opened.model, opened.tokenizer, antecedents.CLASSIC), head, tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} == {".svg"}
