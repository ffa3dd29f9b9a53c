"""The statistical aligner: it finds the links of the embedded corpus, keeps lines in place, and repeats itself."""

from itertools import islice
from typing import Any

import numpy as np
import pytest

import heedful
from heedful.alignment import MOST_CELLS, ROUNDS, Links, both_directions, score, statistical, symmetrize
from heedful.alignment.statistical import TranslationTable, cooccurrence, encode_side
from heedful.data.hindi import generate
from heedful.errors import ConfigError, DataError


def align_pairs(sources: list[str], targets: list[str], **options: Any) -> list[Links]:
    """The links of `heedful.align`."""
    return heedful.align(list(zip(sources, targets, strict=True)), **options).links


@pytest.fixture(scope="module")
def corpus():
    return [example.seen_from("hi-en") for example in islice(generate(2, max_words=12), 1000)]


@pytest.fixture(scope="module")
def found(corpus):
    return align_pairs([e.source for e in corpus], [e.target for e in corpus])


def test_the_links_of_the_embedded_corpus(corpus, found):
    # Gold links auxiliaries and particles to the verb they belong to, which pairs alone do not tell: recall is lower.
    scores = score(found, [frozenset(e.links) for e in corpus])
    assert scores.precision > 0.93
    assert scores.error_rate < 0.24


def test_links_are_plain_and_within_their_sentences(corpus, found):
    for example, links in zip(corpus, found, strict=True):
        ends = len(example.source.split()), len(example.target.split())
        assert all(type(x) is type(y) is int and x < ends[0] and y < ends[1] for x, y in links)


def test_the_same_pairs_give_the_same_links(corpus, found, monkeypatch):
    monkeypatch.setattr(statistical.os, "cpu_count", lambda: 1)
    assert align_pairs([e.source for e in corpus], [e.target for e in corpus]) == found


def test_lines_stay_in_place():
    sources = ["das haus", "", "das buch", "ein", "ein buch", "  "]
    targets = ["The house", "nothing", "the book", "", "a BOOK", ""]
    straight = frozenset({(0, 0), (1, 1)})
    assert align_pairs(sources, targets) == [straight, frozenset(), straight, frozenset(), straight, frozenset()]
    assert align_pairs([], []) == []
    assert align_pairs(["", "a"], ["b", ""]) == [frozenset()] * 2


def test_extra_pairs_help_and_are_not_linked():
    extra = [("rot", "red"), ("rot", "red"), ("auto", "car"), ("auto", "car")]
    assert align_pairs(["auto rot"], ["red car"], extra=extra) == [{(0, 1), (1, 0)}]


def test_symmetries_are_of_both_directions(corpus):
    sources, targets = [e.source for e in corpus[:200]], [e.target for e in corpus[:200]]
    directions = {row: links for row, *links in both_directions(sources, targets)}
    for how in ("forward", "union"):
        expected = [symmetrize(*directions[row], how) for row in range(200)]
        assert align_pairs(sources, targets, symmetry=how) == expected
    for forward, reverse in directions.values():
        assert len({y for _, y in forward}) == len(forward)
        assert len({x for x, _ in reverse}) == len(reverse)


def test_all_pairs_are_counted_once_a_round(corpus):
    read = []
    sources, targets = [e.source for e in corpus[:50]], [e.target for e in corpus[:50]]
    align_pairs([*sources, ""], [*targets, "x"], extra=[("a", "b"), ("", "")], progress=read.append)
    assert sum(read) == ROUNDS * 53


def test_a_pair_that_is_far_too_long_has_no_links():
    long = "w " * (MOST_CELLS // 1000 + 1)
    assert align_pairs(["a b", long], ["x y", "v " * 1000]) == [{(0, 0), (1, 1)}, frozenset()]


def test_what_does_not_match_is_refused():
    with pytest.raises(DataError, match="there are 1 source sentences but 2 target sentences"):
        list(both_directions(["a"], ["b", "c"]))
    with pytest.raises(ConfigError, match="unknown symmetry"):
        align_pairs(["a"], ["b"], symmetry="both")


def test_rare_words_follow_their_stems():
    x = encode_side(["walking", "walked", "walks home", "berlin paris"])
    y = encode_side(["laufend", "laufte", "laufen heim", "oslo berlin"])
    pairs = cooccurrence(x, y, 100)
    lexicon = TranslationTable(pairs, x.vocabulary, y.vocabulary)
    names = [(x.vocabulary[s], y.vocabulary[t]) for s, t in zip(pairs.source, pairs.target, strict=True)]
    counts = np.array([float(s.startswith("walk") and t in ("laufend", "laufte")) for s, t in names])
    share = dict(zip(names, lexicon.conditional(0, counts).tolist(), strict=True))
    assert share["walks", "laufen"] > 2 * share["walks", "heim"]
    assert share["berlin", "berlin"] > 2 * share["berlin", "oslo"]
    back = dict(zip(names, lexicon.conditional(1, counts).tolist(), strict=True))
    assert back["berlin", "berlin"] > 2 * back["paris", "berlin"]
