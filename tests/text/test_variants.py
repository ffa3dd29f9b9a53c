"""Words cut by chance: right in distribution, always the same, and the plain way when nothing is left to chance."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizer_samples import ANYTHING, CORPUS

from heedful.config import TextConfig
from heedful.errors import ConfigError
from heedful.text import END, UNKNOWN, Codec
from heedful.text.counter_rng import key, mixed
from heedful.text.subwords import STRENGTH, Lattices, Merges

KINDS = ("bpe", "unigram")
TEXTS = [*CORPUS, *(f"{a}{b}{a} {b}{a} under standing understanding" for a in "abc" for b in "defg")]
CODECS = {kind: Codec.train(TEXTS, TextConfig(kind=kind, size=300)) for kind in KINDS}


def cuts(codec: Codec, words: list[str], count: int, rate: float, seed: int = 1) -> list[list[tuple[int, ...]]]:
    """The ways that are drawn for each word, the plain one first."""
    ids, lengths = codec.variants(words, [count] * len(words), rate, seed)
    rows = [tuple(part.tolist()) for part in np.split(ids, np.cumsum(lengths)[:-1])]
    return [rows[i : i + count + 1] for i in range(0, len(rows), count + 1)]


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(ANYTHING, max_size=4))
@example(texts=[])
@example(texts=["", "I am eating.", "\ud800", "ξ ज\u093c", "x" * 100 + " 在吃饭東京"])
@settings(max_examples=40, deadline=None)
def test_plain_words_make_the_sentence(kind, texts):
    codec = CODECS[kind]
    for text, words, ids in zip(texts, codec.words(texts), codec.ids(texts), strict=True):
        plain = [i for ways in cuts(codec, words, 0, 0.1) for i in ways[0]] if words else []
        assert (*plain, END) == ids, ascii(text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5, 1.0])
def test_pieces_joined_are_the_word(kind, rate):
    codec = CODECS[kind]
    words = sorted({word for row in codec.words(TEXTS) for word in row})
    for word, ways in zip(words, cuts(codec, words, 16, rate), strict=True):
        assert {"".join(codec.token(i) for i in way) for way in ways} == {word}
        assert UNKNOWN not in ways[0]


@pytest.mark.parametrize("kind", KINDS)
def test_rates(kind):
    """The more is left to chance, the more tokens; at 0 only the plain way; all merges left out: characters."""
    codec = CODECS[kind]
    words = sorted({word for row in codec.words(TEXTS) for word in row})
    sizes = []
    for rate in (0.0, 0.05, 0.2, 1.0):
        found = cuts(codec, words, 16, rate)
        sizes.append(sum(len(way) for ways in found for way in ways[1:]))
        if rate == 0 and kind == "bpe":  # a lattice may have two ways that are equally good
            assert all(set(ways) == {ways[0]} for ways in found)
        if rate == 1 and kind == "bpe":
            assert all(len(way) == len(word) for word, ways in zip(words, found, strict=True) for way in ways[1:])
    assert sizes == sorted(set(sizes))


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_is_cut_alike_in_any_company(kind):
    codec = CODECS[kind]
    words = ["▁understanding", "▁standing", "▁under", "▁ababa", "▁aba"]
    together = cuts(codec, words, 12, 0.3)
    assert together == [cuts(codec, [word], 12, 0.3)[0] for word in words]
    assert together[::-1] == cuts(Codec.parse(codec.dump()), words[::-1], 12, 0.3)
    assert [ways[:5] for ways in together] == cuts(codec, words, 4, 0.3)
    assert together != cuts(codec, words, 12, 0.3, seed=2)
    ids, lengths = codec.variants(words, [3, 0, 1, 0, 2], 0.3, 1)
    assert len(lengths) == 6 + len(words)
    assert ids[: lengths[:4].sum()].tolist() == [i for way in together[0][:4] for i in way]


def merged(symbols: tuple[str, ...], ranks: dict[tuple[str, str], int], rate: float) -> dict[tuple[str, ...], float]:
    """The probability of every result of BPE-dropout, by going through all that can be left out."""
    places = [i for i, pair in enumerate(pairwise(symbols)) if pair in ranks]
    found: Counter[tuple[str, ...]] = Counter()
    for kept in product((False, True), repeat=len(places)):
        share = np.prod([1 - rate if keep else rate for keep in kept])
        left = [place for place, keep in zip(places, kept, strict=True) if keep]
        if not left:
            found[symbols] += share
            continue
        at = min(left, key=lambda i: (ranks[symbols[i], symbols[i + 1]], i))
        after = (*symbols[:at], symbols[at] + symbols[at + 1], *symbols[at + 2 :])
        for result, more in merged(after, ranks, rate).items():
            found[result] += share * more
    return dict(found)


def alike(drawn: list[tuple[str, ...]], expected: dict[tuple[str, ...], float]) -> None:
    """What was drawn comes as often as expected, up to five standard deviations."""
    counts = Counter(drawn)
    assert set(counts) <= set(expected)
    for result, share in expected.items():
        assert abs(counts[result] - share * len(drawn)) <= 5 * (share * (1 - share) * len(drawn)) ** 0.5 + 1, result


@pytest.mark.parametrize("word", ["abcab", "aaaa", "bcabc"])
def test_dropout_is_what_the_paper_says(word):
    merges = [("a", "b"), ("a", "a"), ("ab", "c"), ("b", "c"), ("aa", "aa")]
    tokens = [*"abc", *("".join(pair) for pair in merges), "?"]
    cutter = Merges({token: i for i, token in enumerate(tokens)}, merges, len(tokens) - 1)
    keys = mixed(np.atleast_1d(key(word)), np.arange(20_000))
    found = cutter.cut([word], np.array([20_000]), 0.3, keys)
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    alike([tuple(tokens[i] for i in row if i >= 0) for row in found.tolist()], merged(tuple(word), ranks, 0.3))


def test_the_lattice_is_drawn_from_as_it_should_be():
    vocabulary = [("?", 0.0), ("a", -2.0), ("b", -2.5), ("ab", -3.0), ("ba", -4.0), ("aba", -6.0)]
    scores = dict(vocabulary)
    ways = [("a", "b", "a"), ("ab", "a"), ("a", "ba"), ("aba",)]
    weights = np.exp([STRENGTH / 0.05 * sum(scores[piece] for piece in way) for way in ways])
    keys = mixed(np.atleast_1d(key("lattice")), np.arange(20_000))
    found = Lattices(vocabulary, 0).cut(["aba"], np.array([20_000]), 0.05, keys)
    drawn = [tuple(vocabulary[i][0] for i in row if i >= 0) for row in found.tolist()]
    alike(drawn, dict(zip(ways, (weights / weights.sum()).tolist(), strict=True)))


def test_unknown_characters():
    for kind, unknown in (("bpe", 2), ("unigram", 1)):  # side by side they are one in a unigram vocabulary
        for ways in cuts(CODECS[kind], ["▁ξζunder"], 8, 0.2):
            assert [way.count(UNKNOWN) for way in ways] == [unknown] * 9


@pytest.mark.parametrize("kind", KINDS)
def test_what_hardly_comes_twice_comes_in_parts(kind):
    codec = CODECS[kind]
    long, dense = "under" * 20, "在吃饭東京在吃饭"
    (words, chinese) = codec.words([long, dense])
    assert len(words) > 5
    assert "".join(words) == "▁" + long
    assert len(chinese) >= 4
    assert "".join(chinese) == "▁" + dense
    assert codec.words(["under standing"]) == [["▁under", "▁standing"]]


def test_numbered():
    words, indices, lengths = CODECS["bpe"].numbered(["under a under.", "", "a"])
    assert words == ["▁under", "▁a", "."]
    assert indices.tolist() == [0, 1, 0, 2, 1]
    assert lengths.tolist() == [4, 0, 1]
    assert indices.dtype == np.uint32


@pytest.mark.parametrize("kind", ["word", "char", "sentencepiece"])
def test_kinds_that_cut_in_one_way(kind):
    with pytest.raises(ConfigError, match="bpe.*unigram"):
        Codec.train(["a b"], TextConfig(kind=kind, size=100, regularise=0.1))
    if kind == "sentencepiece":
        pytest.importorskip("sentencepiece")
    codec = Codec.train(["a b"], TextConfig(kind=kind, size=100))
    for action in (lambda: codec.numbered(["a"]), lambda: codec.variants(["▁a"], [1], 0.1, 1)):
        with pytest.raises(ConfigError, match="bpe|unigram"):
            action()
