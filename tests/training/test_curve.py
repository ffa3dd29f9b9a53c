"""Curves in the terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.training.progress import curve

NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(NUMBERS, min_size=1, max_size=50), st.integers(10, 90), st.integers(1, 12))
def test_it_fits(values: list[float], width: int, height: int) -> None:
    lines = curve([(20.0 * i, value) for i, value in enumerate(values)], "loss", width, height)
    assert len(lines) == height + 2
    margin = lines[1].index("│") + 1
    assert all(len(line) <= max(width, margin + 4) for line in lines[1:-1])


def test_up_is_up() -> None:
    rising = curve([(0, 0.0), (100, 1.0)], "BLEU", 40, 4)
    top, bottom = rising[1].split("│")[1], rising[4].split("│")[1]
    assert len(bottom.strip("\u2800 ")) > 0
    assert top.index(top.strip()[0]) > len(bottom)  # the top is reached to the right of where the bottom ends
    assert rising[1].startswith("1.00")
    assert rising[4].startswith("0.00")


@pytest.mark.parametrize("points", [[(5.0, 2.0)], [(5.0, 2.0), (5.0, 3.0)], [(1.0, 7.0), (2.0, 7.0)]])
def test_one_point_and_a_flat_line(points: list[tuple[float, float]]) -> None:
    lines = curve(points, "loss", 30, 3)
    assert lines[0] == f"loss {points[-1][1]:.2f}"
    assert any(mark.strip() for mark in (line.partition("│")[2] for line in lines[1:4]))


def test_the_last_value_and_the_ends_are_named() -> None:
    lines = curve([(1_000, 1.0), (20_000, 12_345.0)], "score", 40, 3)
    assert lines[0] == "score 12,345"
    assert lines[-1].split() == ["1,000", "20,000"]
