"""The rule that makes links of weights: on numbers worked by hand, and against its definition, one word at a time."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.alignment.links import EVEN, WordCells, link_words, matrix_links
from heedful.errors import ShapeError
from heedful.trace.readout import ENDS, MARKS, Readout

# Rows are target words, columns source words and </s>.
WEIGHTS = np.array(
    [
        [0.60, 0.30, 0.05, 0.05],  # the second has half of the largest
        [0.10, 0.35, 0.35, 0.20],  # two tie
        [0.30, 0.10, 0.10, 0.50],  # the largest is </s>
        [0.40, 0.10, 0.10, 0.40],  # the largest ties with </s>
        [0.00, 0.00, 0.00, 0.00],  # nothing is attended to
    ],
    dtype=np.float32,
)
BEST = {(0, 0), (1, 1), (2, 1), (0, 3)}
SOURCE, TARGET = np.zeros(3, bool), np.zeros(5, bool)


@pytest.mark.parametrize(
    ("threshold", "more"),
    [
        (1.0, set()),
        (0.51, set()),
        (0.5, {(1, 0)}),
        (0.25, {(1, 0), (0, 1), (1, 3), (2, 3)}),
        (1e-9, {(1, 0), (2, 0), (0, 1), (1, 3), (2, 3)}),
    ],
)
def test_by_hand(threshold, more):
    assert link_words(WEIGHTS, Readout(threshold=threshold), SOURCE, TARGET) == BEST | more


def test_links_are_plain_numbers_source_first():
    links = link_words(np.array([[0.0, 0.9, 0.1]]), Readout(), np.zeros(2, bool), np.zeros(1, bool))
    assert links == {(1, 0)}
    assert all(type(n) is int for link in links for n in link)


@pytest.mark.parametrize("shape", [(0, 1), (0, 3), (3, 1)])
@pytest.mark.parametrize("even", [False, True])
def test_a_side_without_words_has_no_links(shape, even):
    T, S = shape
    weights = np.full(shape, 1 / S)
    assert link_words(weights, Readout(even=even), np.zeros(S - 1, bool), np.zeros(T, bool)) == frozenset()


@pytest.mark.parametrize("shape", [(3,), (1, 1, 2, 2), (5, 3), (4, 4)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ShapeError, match=r"expected \(5, 4\)"):
        link_words(np.zeros(shape), Readout(), SOURCE, TARGET)


def definition(weights: np.ndarray, readout: Readout, source: np.ndarray, target: np.ndarray) -> set[tuple[int, int]]:
    """The rule as the documents state it, one word at a time."""
    T, S = weights.shape
    value = weights.astype(float)
    if readout.even:
        value = value / (value.sum(0) + EVEN)
    links = set()
    for t in range(T):
        row = [value[t, s] if readout.marks == "keep" or source[s] == target[t] else 0.0 for s in range(S - 1)]
        largest = max(row, default=0.0)
        if largest == 0 or (readout.end == "stop" and value[t, -1] > largest):
            continue
        links |= {(s, t) for s in range(S - 1) if row[s] > 0 and row[s] / largest >= readout.threshold}
    return links


def pairs(seed: int, count: int = 6) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Random pairs of several sizes, some without words; powers of two make ties that no rounding breaks."""
    rng, made = np.random.default_rng(seed), []
    for _ in range(count):
        T, S = rng.integers(0, 6, 2)
        weights = 2.0 ** -rng.integers(0, 4, (T, S + 1)) * (rng.random((T, S + 1)) < 0.8)
        made.append((weights.astype(np.float32), rng.random(S) < 0.3, rng.random(T) < 0.3))
    return made


@given(st.integers(0, 2**32 - 1), st.sampled_from(ENDS), st.sampled_from(MARKS), st.sampled_from([1.0, 0.7, 0.5, 0.25]))
def test_one_pair_and_many_follow_the_definition(seed, end, marks, threshold):
    readout, given_pairs = Readout(end=end, marks=marks, threshold=threshold), pairs(seed)
    wanted = [definition(weights, readout, source, target) for weights, source, target in given_pairs]
    assert [link_words(weights, readout, source, target) for weights, source, target in given_pairs] == wanted
    cells = WordCells([(source, target) for _, source, target in given_pairs])
    flat = np.concatenate([weights.ravel() for weights, _, _ in given_pairs])
    assert [matrix_links(one) for one in cells.split(cells.linked(flat, readout))] == wanted


def test_evened_weights_follow_the_definition():
    """With random weights, none of which tie."""
    rng = np.random.default_rng(3)
    for end, marks, threshold in itertools.product(ENDS, MARKS, (1.0, 0.6, 0.3)):
        readout = Readout(end=end, marks=marks, threshold=threshold, even=True)
        for _ in range(20):
            T, S = rng.integers(1, 7, 2)
            weights = rng.dirichlet(np.ones(S + 1), T).astype(np.float32)
            source, target = rng.random(S) < 0.3, rng.random(T) < 0.3
            assert link_words(weights, readout, source, target) == definition(weights, readout, source, target)


def test_evened_weights_by_hand():
    """0.6 / (1.5 + 0.25), 0.4 / (0.5 + 0.25), 0.9 / 1.75, 0.1 / 0.75; </s> received nothing."""
    weights = np.array([[0.6, 0.4, 0.0], [0.9, 0.1, 0.0]], np.float32)
    cells = WordCells([(np.zeros(2, bool), np.zeros(2, bool))])
    (found,) = cells.split(cells.counted(weights.ravel(), Readout(even=True)))
    np.testing.assert_allclose(found, [[0.6 / 1.75, 0.4 / 0.75, 0], [0.9 / 1.75, 0.1 / 0.75, 0]], rtol=1e-6)
    np.testing.assert_array_equal(cells.counted(np.zeros(6, np.float32), Readout(even=True)), np.zeros(6))


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=9))
def test_of_one_row_evening_keeps_the_order(row):
    """All that the source words of a lone target word received is in its row: the largest stays the largest."""
    weights = np.array([*row, 0.0], dtype=np.float32)
    cells = WordCells([(np.zeros(len(row), bool), np.zeros(1, bool))])
    by_weight = np.argsort(weights[:-1], kind="stable")
    assert (np.diff(cells.counted(weights, Readout(even=True))[by_weight]) >= 0).all()
