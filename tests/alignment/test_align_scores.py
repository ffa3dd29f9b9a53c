"""Alignment error rate: worked by hand, and at the ends where there is nothing to divide by."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.alignment import parse, score, standard_error
from heedful.errors import DataError

LINKS = st.frozensets(st.tuples(st.integers(0, 3), st.integers(0, 3)))


def test_by_hand():
    # A = 4 + 1 links; with S: 0-0, 1-1 in the first and 0-0 in the second; with P also 2-3.
    found = [parse("0-0 1-1 2-3 4-4"), parse("0-0")]
    sure = [parse("0-0 1-1 2-2"), parse("0-0")]
    possible = [parse("2-3 3-2"), parse("")]
    precision, recall, error_rate, links, gold = score(found, sure, possible)
    assert (links, gold) == (5, 4)
    assert precision == pytest.approx(4 / 5)
    assert recall == pytest.approx(3 / 4)
    assert error_rate == pytest.approx(1 - (3 + 4) / (5 + 4))


def test_the_corpus_is_summed_not_averaged():
    precision, recall, *_ = score([parse("0-0 1-1 2-2"), parse("0-1")], [parse("0-0 1-1 2-2"), parse("0-0")])
    assert (precision, recall) == (0.75, 0.75)


def test_without_possible_links_the_error_rate_is_one_minus_f1():
    scores = score([parse("0-0 1-1 2-2")], [parse("0-0 3-3")])
    f1 = 2 * scores.precision * scores.recall / (scores.precision + scores.recall)
    assert scores.error_rate == pytest.approx(1 - f1)


@given(st.lists(st.tuples(LINKS, LINKS, LINKS), min_size=1, max_size=4))
def test_bounds(cases):
    found, sure, possible = map(list, zip(*cases, strict=True))
    scores = score(found, sure, possible)
    assert all(0 <= value <= 1 for value in scores[:3])
    both = [s | p for s, p in zip(sure, possible, strict=True)]
    assert score(found, sure, both) == scores  # possible includes sure whatever is given
    assert score(sure, sure, possible)[:3] == (1, 1, 0)


def test_nothing_found_or_nothing_to_find():
    nothing = [parse("")]
    assert score(nothing, [parse("0-0")]) == (1, 0, 1, 0, 1)
    assert score([parse("0-0")], nothing) == (0, 1, 1, 1, 0)
    assert score(nothing, nothing) == (1, 1, 0, 0, 0)


def test_lists_that_do_not_match_are_refused():
    one, two = [parse("0-0")], [parse("0-0")] * 2
    with pytest.raises(DataError, match="^sentences do not match: 1 with links, 2 with sure links$"):
        score(one, two)
    with pytest.raises(DataError, match=", 2 with possible$"):
        score(one, one, two)
    with pytest.raises(DataError, match="no sentences to score"):
        score([], [])


def test_the_standard_error_of_a_difference_is_that_of_leaving_out_one_by_one():
    """The jackknife does the same without a formula: every sentence is left out in turn."""
    draw = random.Random(3)

    def links(many: int) -> list[frozenset[tuple[int, int]]]:
        return [frozenset((i, draw.randrange(2)) for i in range(draw.randrange(1, 9))) for _ in range(many)]

    some, others, sure, possible = (links(200) for _ in range(4))

    def apart(rows: list[int]) -> float:
        sides = [[side[i] for i in rows] for side in (some, others, sure, possible)]
        return score(sides[0], *sides[2:]).error_rate - score(sides[1], *sides[2:]).error_rate

    left = [apart([i for i in range(200) if i != out]) for out in range(200)]
    jackknife = math.sqrt(199 / 200 * sum((one - sum(left) / 200) ** 2 for one in left))
    assert standard_error(some, others, sure, possible) == pytest.approx(jackknife, rel=0.02)
    assert standard_error(some, some, sure, possible) == 0
    assert standard_error(some[:1], others[:1], sure[:1], possible[:1]) == math.inf
