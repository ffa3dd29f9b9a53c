"""How large a vocabulary is, when nobody says."""

import pytest

from heedful.config import TextConfig
from heedful.text import END, UNKNOWN, Codec
from heedful.text.size import TextCounts, count_texts, resolve_size, vocabulary_size


@pytest.mark.parametrize(
    ("words", "size"),
    [(10**5, 4000), (360_000, 5900), (10**6, 8000), (10**7, 16_000), (10**8, 32_000), (10**10, 32_000)],
)
def test_ten_times_the_words_are_twice_the_pieces(words, size):
    counts = TextCounts(words, 10**7, 10**7, 50)
    assert (
        vocabulary_size(counts, "bpe") == vocabulary_size(counts, "unigram") == vocabulary_size(counts, "sentencepiece")
    )
    assert abs(vocabulary_size(counts, "bpe") - size) < 0.03 * size
    assert 1.4 < vocabulary_size(counts, "bpe", joint=True) / vocabulary_size(counts, "bpe") < 1.55


def test_never_more_than_the_data_supports():
    assert vocabulary_size(TextCounts(2000, 800, 220, 60), "bpe") == 4 + 1 + 60 + 220
    assert vocabulary_size(TextCounts(10**6, 10**5, 3000, 60), "bpe") <= 3065
    assert vocabulary_size(TextCounts(0, 0, 0, 0), "bpe") == 5
    # A script with many characters needs them all.
    assert vocabulary_size(TextCounts(10**6, 10**5, 10**5, 6000), "bpe") > 13_900


def test_words_and_characters():
    assert vocabulary_size(TextCounts(2000, 800, 220, 60), "word") == 865
    assert vocabulary_size(TextCounts(10**6, 60_000, 20_000, 60), "word") == 20_065
    assert vocabulary_size(TextCounts(10**8, 10**6, 10**6, 60), "word") == 50_065
    assert vocabulary_size(TextCounts(10**8, 10**6, 10**6, 60), "char") == 65


def test_counting():
    assert count_texts(["a b a", "b  c\u00a0d"]) == TextCounts(6, 4, 2, 4)
    assert count_texts(["a b a"], times=5.0) == TextCounts(15, 2, 1, 2)
    assert count_texts([]) == TextCounts(0, 0, 0, 0)
    # A sentence without spaces is more than one word, and its letters are counted as they are normalised.
    assert count_texts(["東京へ行く", "東京"]) == TextCounts(4, 4, 1, 5)
    assert count_texts(["e\u0301 \u00e9"]).characters == 1


def test_a_size_that_is_given_stays():
    counts = count_texts(["a b a"])
    assert resolve_size(counts, TextConfig(size=77)).size == 77
    assert resolve_size(counts, TextConfig(kind="char")) == TextConfig(kind="char", size=7)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word", "char", "sentencepiece"])
def test_a_toy_file(kind):
    if kind == "sentencepiece":
        pytest.importorskip("sentencepiece")
    texts = [f"The {a} sees {b} {c}." for a in ("cat", "dog", "man") for b in ("the", "a") for c in ("bird", "tree")]
    codec = Codec.train(texts, TextConfig(kind=kind))
    assert 4 < len(codec) < 60
    assert all(UNKNOWN not in ids and ids[-1] == END for ids in codec.ids(texts))
