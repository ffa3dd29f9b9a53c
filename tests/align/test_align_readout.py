"""Links from weights, on numbers worked by hand."""

import numpy as np
import pytest

from heedful.align import links
from heedful.errors import ConfigError, ShapeError

# Rows are target words, columns source words; the last of each is </s>.
WEIGHTS = np.array(
    [
        [0.60, 0.30, 0.05, 0.05],  # the second has half of the best
        [0.10, 0.35, 0.35, 0.20],  # two tie
        [0.30, 0.10, 0.10, 0.50],  # the best is </s>
        [0.40, 0.10, 0.10, 0.40],  # the best ties with </s>
        [0.00, 0.00, 0.00, 0.00],  # nothing to look at
        [0.90, 0.00, 0.00, 0.10],  # </s> itself
    ],
    dtype=np.float32,
)
BEST = {(0, 0), (1, 1), (2, 1), (0, 3)}


@pytest.mark.parametrize(
    ("threshold", "more"),
    [
        (1.0, set()),
        (0.51, set()),
        (0.5, {(1, 0)}),
        (0.25, {(1, 0), (0, 1), (1, 3), (2, 3)}),
        (0.0, {(1, 0), (2, 0), (0, 1), (1, 3), (2, 3)}),
    ],
)
def test_by_hand(threshold, more):
    assert links(WEIGHTS, threshold) == BEST | more


def test_links_are_plain_numbers_source_first():
    found = links(np.array([[0.0, 0.9, 0.1], [0.0, 0.0, 1.0]]), 1.0)
    assert found == {(1, 0)}
    assert all(type(n) is int for link in found for n in link)


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1)])
def test_a_side_without_words_has_no_links(shape):
    assert links(np.full(shape, 1 / shape[1]), 0.5) == frozenset()


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan")])
def test_other_thresholds_are_refused(threshold):
    with pytest.raises(ConfigError, match="from 0 to 1"):
        links(WEIGHTS, threshold)


@pytest.mark.parametrize("shape", [(3,), (1, 1, 2, 2), (0, 3), (3, 0)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ShapeError, match="expected \\(target words, source words\\)"):
        links(np.zeros(shape), 0.5)
