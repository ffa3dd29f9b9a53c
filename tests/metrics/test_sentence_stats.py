"""Counts and scores: sacrebleu's own, for one reference and for several, for corpora and for sentences."""

import logging

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_samples import OUTPUTS, REFERENCES, WORDS, corpus
from sacrebleu.metrics import BLEU, CHRF, TER

from heedful.errors import DataError
from heedful.metrics import (
    CAPTION_METRICS,
    METRICS,
    TRANSLATION_METRICS,
    bleu,
    by_length,
    chrf,
    exact_match,
    extract_stats,
    sign,
    table,
    ter,
)
from heedful.metrics.sentence_stats import FORMULAS

THEIRS = {"bleu": BLEU, "chrf": CHRF, "ter": TER}
SENTENCES = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)


def theirs(outputs, references):
    """sacrebleu's scores; references by sentence, None where there is none."""
    streams = [list(stream) for stream in zip(*references, strict=True)]
    return {name: metric().corpus_score(outputs, streams).score for name, metric in THEIRS.items()}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_scores_are_sacrebleus_by_hand(count):
    references = [each[:count] for each in REFERENCES]
    stats = extract_stats(OUTPUTS, references)
    found = stats.scores()
    assert found.pop("exact") == pytest.approx(100 * 2 / 8)
    assert found == pytest.approx(theirs(OUTPUTS, references))
    assert 5 < found["bleu"] < 90  # neither end, where many mistakes agree
    assert all(f"nrefs:{count}|" in signature for signature in stats.signatures.values())


@given(st.lists(st.tuples(SENTENCES, SENTENCES, SENTENCES, SENTENCES), min_size=1, max_size=8))
@settings(max_examples=60, deadline=None)
def test_scores_are_sacrebleus_at_random(rows):
    outputs = [row[0] for row in rows]
    single = [row[1:2] for row in rows]
    found = extract_stats(outputs, single, list(THEIRS)).scores()
    assert found == pytest.approx(theirs(outputs, single), abs=1e-9)
    several = [[text for text in row[1:] if text] or [""] for row in rows]
    padded = [each + [None] * (3 - len(each)) for each in several]
    assert extract_stats(outputs, [row[1:] for row in rows], list(THEIRS)).scores() == pytest.approx(
        theirs(outputs, padded), abs=1e-9
    )


def test_many_sentences_are_more_than_one_chunk():
    outputs, references = corpus(173)
    found = extract_stats(outputs, references, list(THEIRS)).scores()
    assert found == pytest.approx(theirs(outputs, [[r] for r in references]))
    assert (bleu(outputs, references), chrf(outputs, references), ter(outputs, references)) == pytest.approx(
        tuple(found.values())
    )


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_each_sentence_has_sacrebleus_score(metric):
    made = {"bleu": BLEU(effective_order=True), "chrf": CHRF(), "ter": TER()}[metric]
    outputs, references = corpus(80, seed=3)
    outputs, wanted = [*OUTPUTS, *outputs], [*REFERENCES, *([r] for r in references)]
    each = extract_stats(outputs, wanted).sentences(metric)
    assert each.tolist() == pytest.approx(
        [made.sentence_score(o, r).score for o, r in zip(outputs, wanted, strict=True)]
    )


def test_an_empty_reference_is_none_at_all():
    stats = extract_stats(["a b c d"], [["a b c d e f", "", " "]])
    assert stats.scores() == extract_stats(["a b c d"], [["a b c d e f"]]).scores()
    assert "nrefs:1|" in stats.signatures["bleu"]
    mixed = extract_stats(["a b", "c"], [["a b", "a"], ["c", ""]])
    assert all("nrefs:var|" in signature for signature in mixed.signatures.values())


def test_the_number_of_references_is_that_of_all_chunks():
    references = [["a", "b"], *[["a"]] * 120]
    assert "nrefs:var|" in extract_stats(["a"] * 121, references, ["bleu"]).signatures["bleu"]
    assert "nrefs:var|" in extract_stats(["a"] * 121, references[::-1], ["bleu"]).signatures["bleu"]


def test_signatures_say_what_was_measured():
    version = sacrebleu.__version__
    assert extract_stats(["a"], ["a"]).signatures == {
        "bleu": f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{version}",
        "chrf": f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:{version}",
        "ter": f"nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:{version}",
    }


def test_letters_of_another_form_are_the_same_letters():
    for name, value in extract_stats(["cafe\u0301 ज\u093c a b"], ["caf\u00e9 \u095b a b"]).scores().items():
        assert value == pytest.approx(0 if name == "ter" else 100)
    assert exact_match("ज\u093c", "\u095b")


def test_exact_match_with_any_reference():
    assert extract_stats(["a  b", "c"], [["x", "a b"], ["d", ""]], ["exact"]).scores() == {"exact": 50.0}


def test_without_spaces_ter_counts_what_bleu_does():
    chinese, other = "我今天早上去学校学习汉语", "我今天晚上去学校学习汉语"  # one character of twelve
    stats = extract_stats([other], [chinese])
    assert stats.scores()["ter"] == pytest.approx(100 / 12)
    assert "|tok:zh+tercom|" in stats.signatures["ter"]
    assert extract_stats(["わたしは学生です"], ["わたしは先生です"]).scores()["ter"] == pytest.approx(100 / 8)


def test_formulas_take_many_at_once():
    outputs, references = corpus(12, seed=5)
    stats = extract_stats(outputs, references, sorted({*TRANSLATION_METRICS, *CAPTION_METRICS}))
    for name in stats.counts:
        counts = stats.counts[name]
        grid = np.stack([counts, counts[::-1]])
        assert FORMULAS[name](grid).shape == (2, 12)
        assert FORMULAS[name](grid)[1, 0] == FORMULAS[name](counts[-1])


def test_nothing_is_logged_of_texts_that_end_in_a_full_stop(caplog):
    with caplog.at_level(logging.WARNING, "sacrebleu"):
        extract_stats(["a b ."] * 150, ["a b ."] * 150)
    assert not caplog.records


def test_watch_hears_of_every_sentence():
    heard = []
    extract_stats(["a"] * 120, ["a"] * 120, ["chrf"], heard.append)
    assert (sum(heard), len(heard)) == (120, 3)


def test_a_table_has_the_rows_that_judging_them_alone_would_give():
    outputs, references = corpus(60, seed=2)
    lengths = [len(text.split()) for text in references]
    made = table(lengths, extract_stats(outputs, references))
    assert made.total.ter == pytest.approx(ter(outputs, references))
    for row in made.rows:
        chosen = [i for i, n in enumerate(lengths) if row.low <= n <= (row.high or 99)]
        some = [outputs[i] for i in chosen], [references[i] for i in chosen]
        assert (row.bleu, row.chrf, row.ter) == pytest.approx((bleu(*some), chrf(*some), ter(*some)))
    assert made.plain()["ter_signature"].startswith("nrefs:1|case:lc")
    quick = by_length(lengths, outputs, references)
    assert (quick.total.ter, quick.total.bleu) == (None, made.total.bleu)
    assert "ter" not in quick.plain()
    assert "ter" not in quick.plain()["by_length"][0]


def test_which_way_is_better():
    assert {name: sign(name) for name in METRICS if sign(name) < 0} == {"ter": -1}


def test_unequal_numbers_are_refused():
    with pytest.raises(DataError, match="2 translations for 1 references"):
        extract_stats(["a", "b"], ["a"])
    with pytest.raises(DataError, match="nothing to score"):
        extract_stats([], [])
