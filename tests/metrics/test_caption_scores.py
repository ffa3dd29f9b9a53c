"""CIDEr-D and ROUGE-L: pycocoevalcap's numbers, numbers worked by hand, tokens, and significance.

The recorded numbers are those of the Python classes `Cider` and `Rouge` of PyPI's pycocoevalcap 1.2, given the
tokens of `caption_tokens` joined by spaces.
"""

from math import exp, log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_samples import OUTPUTS, REFERENCES, corpus

from heedful.errors import DataError
from heedful.metrics import (
    CAPTION_METRICS,
    caption_tokens,
    cider_d,
    compare_stats,
    differences,
    extract_stats,
    intervals,
    rouge_l,
    table,
)

UNEQUAL = [each[: 1 + i % 3] for i, each in enumerate(REFERENCES)]  # one, two or three references
CIDER = [10.0, 3.760192680426, 4.297520823588, 0.0, 0.173374776444, 5.72040525908, 0.928476690885, 1.479753935014]
ROUGE = [1.0, 0.8, 1.0, 0.0, 0.131749460043, 1.0, 0.5, 1.0]

WORDS = st.lists(st.sampled_from(["a", "red", "bird", "house", "घर", "two"]), min_size=1, max_size=7)
IMAGES = st.lists(st.tuples(WORDS, st.lists(WORDS, min_size=1, max_size=3)), min_size=1, max_size=6)


def tokens(outputs, references):
    return list(map(caption_tokens, outputs)), [list(map(caption_tokens, each)) for each in references]


def test_scores_are_pycocoevalcaps_with_different_numbers_of_references():
    lists = tokens(OUTPUTS, UNEQUAL)
    assert cider_d(*lists).tolist() == pytest.approx(CIDER, abs=1e-11)
    assert rouge_l(*lists).tolist() == pytest.approx(ROUGE, abs=1e-11)


def test_scores_are_pycocoevalcaps_for_two_references():
    outputs, references = corpus(40, seed=9)
    others, _ = corpus(40, seed=9, wrong=0.5)
    # No empty texts: to pycocoevalcap's ROUGE-L one is an empty token, which another one matches.
    outputs, references, others = ([f"the {text}" for text in each] for each in (outputs, references, others))
    lists = tokens(outputs, zip(references, others, strict=True))
    assert cider_d(*lists).mean() == pytest.approx(4.1509307860057465, abs=1e-12)
    assert rouge_l(*lists).mean() == pytest.approx(0.8617984433692382, abs=1e-12)


def test_cider_by_hand():
    # Two images. "a" is in both, so it counts nothing; every other n-gram counts log 2.
    scores = cider_d([["a", "bird"], ["a", "cat", "sat"]], [[["a", "red", "bird"]], [["a", "cat"], ["cat"]]])
    # Image 1: of 1-grams, "bird" of {bird} and {red, bird}; the pair "a bird" is not in the reference; 1 and 2 pairs.
    assert scores[0] == pytest.approx(10 / 4 * exp(-1 / 72) / sqrt(2))
    # Image 2, "a cat": {cat} of {cat, sat}, {a cat} of {a cat, cat sat}. "cat" has no pairs.
    assert scores[1] == pytest.approx(10 / 4 * (exp(-1 / 72) * 2 / sqrt(2) + exp(-4 / 72) / sqrt(2)) / 2)


def test_cider_clips_repeated_words():
    references = [[["red", "bird"]], [["tree"]]]
    once, twice = (cider_d([words, ["tree"]], references)[0] for words in (["red"], ["red", "red"]))
    assert once == pytest.approx(10 / 4 / sqrt(2) * exp(-1 / 72))
    assert twice == pytest.approx(10 / 4 * (1 / sqrt(2)) / 2)  # min(2, 1), over the norm 2; as many pairs


def test_words_of_every_image_count_nothing_and_rare_ones_most():
    images = [[["a", word]] for word in ("bird", "bird", "bird", "tree")]
    outputs = [["a"], ["bird"], ["a"], ["tree"]]
    scores = cider_d(outputs, images)
    assert scores[0] == scores[2] == 0
    assert scores[1] == pytest.approx(10 / 4 * exp(-1 / 72))  # cosines do not know the weight of one word alone
    mixed = cider_d([["tree", "bird"], *outputs[1:]], [[["bird", "x"]], *images[1:]])[0]
    bird, other = log(4 / 3), log(4)
    assert mixed == pytest.approx(10 / 4 * bird**2 / (bird**2 + other**2))


def test_one_image_alone_has_no_cider():
    assert cider_d([["a", "b"]], [[["a", "b"]]]).tolist() == [0.0]
    assert rouge_l([["a", "b"]], [[["a", "b"]]]).tolist() == [1.0]


def test_an_empty_caption_has_nothing():
    references = [[["a", "b"], ["a"]], [["c"]]]
    assert cider_d([[], ["c"]], references)[0] == 0
    assert rouge_l([[], ["c"]], references).tolist() == [0, 1]
    assert rouge_l([["a"]], [[[]]]).tolist() == cider_d([["a"]], [[[]]]).tolist() == [0]


def test_rouge_takes_the_best_precision_and_the_best_recall():
    # Subsequences of "a b c d": 2 of ("a", "c"), 3 of ("a", "b", "x", "d", "y", "z"). Precision 3/4, recall 1.
    score = rouge_l([["a", "b", "c", "d"]], [[["a", "c"], ["a", "b", "x", "d", "y", "z"]]])[0]
    assert score == pytest.approx((1 + 1.44) * 0.75 / (1 + 1.44 * 0.75))
    assert rouge_l([["b", "a"]], [[["a", "b"]]])[0] == pytest.approx(0.5)  # order counts


@given(IMAGES)
@settings(max_examples=40, deadline=None)
def test_bounds_and_the_order_of_references(images):
    outputs, references = map(list, zip(*images, strict=True))
    cider, rouge = cider_d(outputs, references), rouge_l(outputs, references)
    assert ((cider >= 0) & (cider <= 10 + 1e-9)).all()
    assert ((rouge >= 0) & (rouge <= 1 + 1e-9)).all()
    turned = [each[::-1] for each in references]
    assert cider_d(outputs, turned).tolist() == pytest.approx(cider.tolist())
    assert rouge_l(outputs, turned).tolist() == rouge.tolist()
    copied = [each[0] for each in references]
    assert rouge_l(copied, references).tolist() == [1.0] * len(images)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Two dogs run, one doesn't.", ["two", "dogs", "run", "one", "does", "n't"]),
        ("The man’s T-shirt - 'red'", ["the", "man", "'s", "t-shirt", "red"]),
        ("1,000 birds at 5.30 o'clock...", ["1,000", "birds", "at", "5.30", "o'clock"]),
        ("--a-- .b. c,d", ["a", "b", "c", "d"]),
        ("मैं ज़रूर घर जाऊँगा।", ["मैं", "ज\u093cरूर", "घर", "जाऊँगा"]),
        ("एक 'लाल' पक्षी, दो-तीन घर", ["एक", "लाल", "पक्षी", "दो-तीन", "घर"]),
        ("CAFE\u0301 İ", ["caf\u00e9", "i\u0307"]),
        ("一只红鸟。", ["一", "只", "红", "鸟"]),
        ("ที่บ้าน", ["ที่", "บ้", "า", "น"]),
        ("A_b\t😀\n", ["a", "b"]),
        ("", []),
        ("…!?", []),
    ],
)
def test_tokens(text, expected):
    assert caption_tokens(text) == expected


def test_statistics_are_percentages_and_means():
    stats = extract_stats(OUTPUTS, UNEQUAL, CAPTION_METRICS)
    assert stats.scores()["cider"] == pytest.approx(100 * np.mean(CIDER))
    assert stats.scores()["rouge"] == pytest.approx(100 * np.mean(ROUGE))
    assert stats.sentences("cider").tolist() == pytest.approx([100 * score for score in CIDER])
    assert stats.scores([1, 2])["cider"] == pytest.approx(100 * np.mean(CIDER[1:3]))  # the same document frequencies
    plain = extract_stats(OUTPUTS, UNEQUAL, ["bleu", "chrf", "exact"])
    assert {name: stats.scores()[name] for name in plain.counts} == plain.scores()
    assert "nrefs:var|" in stats.signatures["cider"]
    assert stats.signatures["cider"].endswith("images:8")
    assert "nrefs:3|" in extract_stats(OUTPUTS, REFERENCES, ["rouge"]).signatures["rouge"]


def test_intervals_and_differences_of_captions():
    outputs, references = corpus(120, seed=4)
    worse, _ = corpus(120, seed=4, wrong=0.6)
    better, other = (extract_stats(each, references, CAPTION_METRICS) for each in (outputs, worse))
    ends = intervals(better, 200)["cider"]
    assert ends.low < better.scores()["cider"] < ends.high
    by_metric = differences(better, other, resamples=200)
    assert {by_metric[name].verdict for name in CAPTION_METRICS} == {"better"}
    assert differences(better, better, resamples=0)["rouge"].verdict == "no significant difference"
    comparison = compare_stats(better, other, "cider", resamples=0)
    assert comparison.wins > comparison.losses > 0


def test_a_table_by_number_of_objects():
    stats = extract_stats(OUTPUTS, UNEQUAL, CAPTION_METRICS)
    made = table([1, 2, 3, 3, 1, 9, 2, 1], stats, edges=(1, 2, 3, 4))
    assert [(row.label, row.pairs) for row in made.rows] == [("1", 3), ("2", 2), ("3", 2), ("4+", 1)]
    assert made.rows[1].cider == pytest.approx(100 * np.mean([CIDER[1], CIDER[6]]))
    record = made.plain()
    assert "ter" not in record
    assert record["rouge"] == pytest.approx(100 * np.mean(ROUGE))


@pytest.mark.parametrize("score", [cider_d, rouge_l])
def test_wrong_numbers_of_captions_and_references(score):
    with pytest.raises(DataError, match="2 captions for the references of 1 "):
        score([["a"], ["b"]], [[["a"]]])
    with pytest.raises(DataError, match="image 2 of 2"):
        score([["a"], ["b"]], [[["a"]], []])
    with pytest.raises(DataError, match="nothing to score"):
        score([], [])
