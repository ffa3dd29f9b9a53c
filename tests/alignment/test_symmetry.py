"""Symmetrising, on links worked by hand."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.alignment import HEURISTICS, flip, parse, symmetrize, text
from heedful.errors import ConfigError

LINKS = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8)

FORWARD, REVERSE = parse("0-0 1-1 1-2 4-4 6-5"), parse("0-0 1-1 2-1 4-4 5-6 0-2")


@pytest.mark.parametrize(
    ("how", "links"),
    [
        ("forward", "0-0 1-1 1-2 4-4 6-5"),
        ("reverse", "0-0 0-2 1-1 2-1 4-4 5-6"),
        ("intersection", "0-0 1-1 4-4"),
        ("union", "0-0 0-2 1-1 1-2 2-1 4-4 5-6 6-5"),
        # 1-2 brings target word 2, 2-1 source word 2; then 0-2 has no new word. 6-5 and 5-6 touch nothing.
        ("grow-diag", "0-0 1-1 1-2 2-1 4-4"),
        # Both words of 6-5 are free, and then those of 5-6.
        ("grow-diag-final-and", "0-0 1-1 1-2 2-1 4-4 5-6 6-5"),
    ],
)
def test_by_hand(how, links):
    assert text(symmetrize(FORWARD, REVERSE, how)) == links


def test_growing_goes_on_from_what_was_added():
    forward, reverse = parse("0-0 1-1 2-2 3-3"), parse("0-0")
    assert symmetrize(forward, reverse, "grow-diag") == forward
    assert symmetrize(parse("0-0 2-2"), reverse, "grow-diag") == reverse


def test_final_and_takes_no_word_twice():
    assert text(symmetrize(parse("3-3"), parse("3-4"))) == "3-3"


@given(LINKS, LINKS)
def test_each_lies_between_intersection_and_union(forward, reverse):
    both = [symmetrize(forward, reverse, h) for h in ("intersection", "grow-diag", "grow-diag-final-and", "union")]
    assert all(less <= more for less, more in pairwise(both))
    for how in HEURISTICS:
        assert symmetrize(forward, forward, how) == forward
    for how in ("intersection", "union"):
        assert symmetrize(flip(forward), flip(reverse), how) == flip(symmetrize(forward, reverse, how))


def test_another_name_is_refused():
    with pytest.raises(ConfigError, match="unknown symmetry 'grow'.*Did you mean 'grow-diag'?"):
        symmetrize(FORWARD, REVERSE, "grow")
