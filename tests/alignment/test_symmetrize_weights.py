"""Weights that are evened, and two directions joined, on numbers worked by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.alignment import DirectedLinks
from heedful.alignment.links import EVEN, link_words
from heedful.trace.readout import SYMMETRIES, Readout

EVENED = Readout(even=True)


def found(weights, readout, source=None, target=None):
    """The links of weights with `</s>` last, (source, target)."""
    weights = np.array(weights, dtype=np.float32)
    T, S = weights.shape
    marks = [np.zeros(n, bool) if side is None else np.array(side) for side, n in ((source, S - 1), (target, T))]
    return link_words(weights, readout, *marks)


def test_a_word_that_everybody_looks_at_is_less():
    """The second source word gets 0.55 + 0.5 + 0.9; 0.35 / 0.85 and 0.4 / 0.85 are more than their 0.55 / 2.2."""
    weights = [[0.35, 0.55, 0.0, 0.1], [0.0, 0.5, 0.4, 0.1], [0.05, 0.9, 0.05, 0.0]]
    assert found(weights, Readout()) == {(1, 0), (1, 1), (1, 2)}
    assert found(weights, EVENED) == {(0, 0), (2, 1), (1, 2)}


def test_the_end_is_evened_with_the_words():
    """Of the first row </s> has 0.6 as it is and 0.6 / 1.75 evened, and the word 0.3 / 0.65, which is between."""
    weights = [[0.3, 0.1, 0.6], [0.1, 0.0, 0.9]]
    assert found(weights, Readout()) == set()
    assert found(weights, EVENED) == {(0, 0)}
    # 0.1 / 0.65 is less than 0.9 / 1.75.
    assert found(weights, Readout(even=True, end="drop")) == {(0, 0), (0, 1)}


def test_marks_are_apart_after_evening():
    weights = [[0.1, 0.9, 0.0], [0.2, 0.8, 0.0]]
    apart = Readout(even=True, marks="apart")
    assert found(weights, apart, source=[False, True], target=[False, True]) == {(0, 0), (1, 1)}


@given(st.lists(st.floats(1 / 64, 1, width=32), min_size=2, max_size=8, unique=True), st.sampled_from([1.0, 0.5]))
def test_a_lone_word_is_not_linked_to_everything(row, threshold):
    """All that its source words got is from this row: shares of columns alone would all be 1."""
    raw = found([[*row, 0.0]], Readout(threshold=threshold))
    best = int(np.argmax(row))
    evened = found([[*row, 0.0]], Readout(even=True, threshold=threshold))
    assert (best, 0) in evened
    if threshold == 1.0:
        assert evened == raw == {(best, 0)}


def test_a_lone_word_and_a_lower_threshold():
    """0.8 / 1.05 and 0.1 / 0.35: the second has 0.375 of the first, which 0.5 leaves out."""
    weights = [[0.8, 0.1, 0.1, 0.0]]
    assert found(weights, Readout(even=True, threshold=0.5)) == {(0, 0)}
    assert found(weights, Readout(even=True, threshold=0.37)) == {(0, 0), (1, 0), (2, 0)}
    assert pytest.approx(0.25) == EVEN


# Two target words, both of the same source word; the other source word has no translation.
THERE = DirectedLinks(frozenset({(0, 0), (0, 1)}), np.array([[0.8, 0.2], [0.6, 0.4]]))
BACK = DirectedLinks(frozenset({(0, 0), (1, 1)}), np.array([[0.5, 0.5], [0.4, 0.6]]))


def test_the_product_by_hand():
    """The products are 0.40 0.10 and 0.24 0.24: the second row ties, its first is not the best of its column."""
    assert THERE.combined(BACK, "product") == {(0, 0), (1, 1)}
    # Half of the largest is enough in either direction: 0.24 of 0.40 is linked as well.
    half = [one._replace(threshold=0.5) for one in (THERE, BACK)]
    assert half[0].combined(half[1], "product") == {(0, 0), (0, 1), (1, 1)}
    # Each direction has its own: 0.24 is near enough to 0.40 for the source word, and the target word has no say.
    assert THERE.combined(half[1], "product") == {(0, 0), (0, 1), (1, 1)}


def test_many_to_one_takes_a_lower_threshold():
    """A product of two directions at threshold 1 gives every word one link at most, unless it ties."""
    many = DirectedLinks(frozenset({(0, 0), (0, 1)}), np.array([[0.9], [0.8]]))
    one = DirectedLinks(frozenset({(0, 0)}), np.array([[0.55], [0.45]]))
    assert many.combined(one, "product") == {(0, 0)}
    assert many._replace(threshold=0.5).combined(one._replace(threshold=0.5), "product") == {(0, 0), (0, 1)}
    assert many.combined(one, "union") == {(0, 0), (0, 1)}


def test_nothing_is_linked_where_either_has_no_weight():
    nothing = DirectedLinks(frozenset(), np.zeros((2, 2)))
    assert THERE.combined(nothing, "product") == nothing.combined(THERE, "product") == frozenset()
    empty = DirectedLinks(frozenset(), np.zeros((0, 3)))
    assert all(empty.combined(empty, how) == frozenset() for how in SYMMETRIES)


WEIGHTS = st.integers(1, 5).flatmap(
    lambda T: st.integers(1, 5).flatmap(
        lambda S: st.tuples(
            *(st.lists(st.floats(0, 1), min_size=T * S, max_size=T * S).map(_shaped(T, S)) for _ in range(2))
        )
    )
)


def _shaped(T: int, S: int):
    return lambda numbers: DirectedLinks(frozenset(), np.array(numbers).reshape(T, S), 0.7)


@given(WEIGHTS)
def test_directions_may_change_places(both):
    there, back = both
    straight = there.combined(back, "product")
    assert {(t, s) for s, t in straight} == back.flipped().combined(there.flipped(), "product")
    product = there.weights * back.weights
    assert bool(straight) == bool(product.any())  # the largest of all is linked, if there is any
    T, S = product.shape
    assert all(0 <= s < S and 0 <= t < T for s, t in straight)
