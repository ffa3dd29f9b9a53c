"""Pointing accuracy: worked by hand on a small grid."""

import numpy as np
import pytest

from heedful.errors import ShapeError
from heedful.metrics.pointing import GoldWord, PointingTable, gold_words, points_right
from heedful.trace.trace import ImageRegions

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
