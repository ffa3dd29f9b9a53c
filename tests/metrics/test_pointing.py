"""Pointing accuracy: worked by hand on a small grid."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.errors import ShapeError
from heedful.metrics.pointing import GoldWord, PointingTable, gold_words, points_right
from heedful.trace.trace import ImageRegions, covered_regions

IMAGE = ImageRegions("a.png", 100, 50, 2, 4)  # regions of 25 × 25 pixels


def test_gold_words_by_hand():
    words = gold_words(
        IMAGE,
        [
            (3, (40, 10, 30, 30), "noun"),  # centres of 37.5 and 62.5 pixels: only 62.5 is inside from 40 to 70
            (1, (0, 0, 25, 25), "colour"),
            (5, (1, 1, 3, 3), ""),  # no centre inside: the region that it overlaps
            (1, (75, 25, 25, 25), "colour"),
            (6, (200, 10, 5, 5), "noun"),  # outside of the picture
        ],
    )
    assert [(one.word, sorted(one.regions), one.kind) for one in words] == [
        (1, [0, 7], "colour"),
        (3, [2, 6], "noun"),
        (5, [0], ""),
    ]
    assert [one.share for one in words] == [2 / 8, 2 / 8, 1 / 8]
    assert [one.centre for one in words] == [False, True, False]  # (50, 25)


def test_the_largest_weight_decides():
    gold = [GoldWord(0, frozenset({1, 2}), 0.5, False), GoldWord(2, frozenset({0}), 0.25, False)]
    weights = np.array([[0.1, 0.2, 0.5, 0.2], [1, 0, 0, 0], [0.3, 0.3, 0.4, 0]])
    assert points_right(weights, gold) == [True, False]
    assert points_right(weights[:, ::-1], gold) == [True, False]
    with pytest.raises(ShapeError, match="2 rows"):
        points_right(weights[:2], gold)


def test_a_word_without_weights_points_nowhere():
    weights = np.array([[0.0, 0.0], [0.5, 0.1]])
    gold = [GoldWord(word, frozenset({0}), 0.5, False) for word in (0, 1)]
    assert points_right(weights, gold) == [False, True]


def test_the_table_has_chance_and_centre():
    nouns = [GoldWord(i, frozenset({i}), 0.1, i < 1, "noun") for i in range(4)]
    colours = [GoldWord(i, frozenset({i}), 0.3, True, "colour") for i in range(2)]
    made = PointingTable.of([*nouns, *colours], [True, True, True, False, False, True])
    assert [row.kind for row in made.rows] == ["noun", "colour"]
    assert made.rows[0][1:] == pytest.approx((4, 75, 10, 25))
    assert made.rows[1][1:] == pytest.approx((2, 50, 30, 100))
    assert made.total[1:] == pytest.approx((6, 100 * 4 / 6, 100 * (0.4 + 0.6) / 6, 50))
    assert made.plain()["by_kind"][0]["accuracy"] == pytest.approx(75)
    assert made.plain()["words"] == 6
    assert len({len(line) for line in made.text().splitlines()}) == 1


def test_without_kinds_there_is_one_row():
    made = PointingTable.of([GoldWord(0, frozenset({1}), 0.5, True)], [True])
    assert (made.rows, made.total.accuracy) == ((), 100)


def test_narrow_and_low_boxes_cover_a_column_or_a_row() -> None:
    image = ImageRegions("a.png", 64, 64, 8, 8)
    assert image.covered((5, 0, 6, 64)) == list(range(0, 64, 8)) == image.covered((3, 0, 2, 64))
    assert image.covered((0, 9, 64, 2)) == list(range(8, 16))
    assert image.covered((17, 9, 1, 1)) == [10]
    assert image.covered((-5, -5, 6, 6)) == [0]


def test_a_centre_on_an_edge() -> None:
    image = ImageRegions("a.png", 40, 40, 4, 4)  # centres at 5, 15, 25, 35
    assert image.covered((5, 5, 10, 10)) == [0, 1, 4, 5]
    assert image.covered((5.1, 5, 9.8, 9.9)) == [0]
    assert image.covered((40, 0, 5, 5)) == image.covered((-5, 0, 5, 5)) == image.covered((3, 3, 0, 3)) == []


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_one_box_is_covered_as_many_are(data: st.DataObject) -> None:
    """Training asks for all boxes at once, evaluation for each; whole numbers meet edges and centres often."""
    number = st.one_of(st.integers(-20, 120), st.floats(-20, 120, width=32))
    extent = st.one_of(st.integers(1, 140), st.floats(0.125, 140, width=32))
    boxes = data.draw(st.lists(st.tuples(number, number, extent, extent), min_size=1, max_size=5))
    width, height, rows, columns = (data.draw(st.integers(1, most)) for most in (100, 100, 9, 9))
    image = ImageRegions("a.png", width, height, rows, columns)
    box, region = covered_regions(np.array(boxes), np.array([[width, height]] * len(boxes)), rows, columns)
    for i, (x, y, w, h) in enumerate(boxes):
        covered = image.covered((x, y, w, h))
        assert covered == region[box == i].tolist()
        assert bool(covered) == (x < width and y < height and x + w > 0 and y + h > 0)
        centres = [(X + W / 2, Y + H / 2) for X, Y, W, H in (image.box(j) for j in range(image.count))]
        inside = {j for j, (cx, cy) in enumerate(centres) if x < cx < x + w and y < cy < y + h}
        assert {j for j in inside if _clear(centres[j], (x, y, w, h))} <= set(covered)
        for j in covered:
            left, top, wide, high = image.box(j)
            assert x - 1e-6 < left + wide
            assert left - 1e-6 < x + w
            assert y - 1e-6 < top + high
            assert top - 1e-6 < y + h


def _clear(centre: tuple[float, float], box: tuple[float, float, float, float]) -> bool:
    """Whether a centre is not so near an edge that rounding decides."""
    edges = ((0, box[0]), (0, box[0] + box[2]), (1, box[1]), (1, box[1] + box[3]))
    return all(abs(centre[axis] - edge) > 1e-4 for axis, edge in edges)
