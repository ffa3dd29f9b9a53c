"""Symmetrising: on links worked by hand, and against the pseudocode that it is known by."""

import random
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
        ("grow-diag-final", "0-0 1-1 1-2 2-1 4-4 5-6 6-5"),
        ("grow-diag-final-and", "0-0 1-1 1-2 2-1 4-4 5-6 6-5"),
        # 1-2 and 2-1 each share a word with 1-1, 0-2 with 0-0.
        ("grow-diag-strict", "0-0 1-1 4-4"),
        ("grow-diag-final-strict", "0-0 1-1 4-4 5-6 6-5"),
    ],
)
def test_by_hand(how, links):
    assert text(symmetrize(FORWARD, REVERSE, how)) == links


@pytest.mark.parametrize(
    ("how", "forward", "reverse", "links"),
    [
        # Target word 0 comes first: 2-0 adds 2-1 and then 1-1. With 0-2 first, 1-1 would leave no word for 2-1.
        ("grow-diag", "0-2 2-0 2-1", "0-2 1-1 2-0", "0-2 1-1 2-0 2-1"),
        # 0-0 adds 1-0 and its corner 1-1, which is visited next and adds 2-1, and that 3-1.
        ("grow-diag", "0-0 1-1", "0-0 1-0 2-1 3-1", "0-0 1-0 1-1 2-1 3-1"),
        # Forward links first: 0-1 takes target word 1, and 1-1 has source word 1 left.
        ("grow-diag-final", "0-0 0-1", "1-1", "0-0 0-1 1-1"),
        ("grow-diag-final", "1-1", "0-0 0-1", "0-0 1-1"),
        ("grow-diag-final-and", "0-0 0-1", "1-1", "0-0 1-1"),
        # 0-1 shares a word with 0-2, and 1-0 one with 1-1, but 2-2 does not.
        ("grow-diag-strict", "0-1 0-2", "0-2", "0-2"),
        ("grow-diag-strict", "1-1 2-2", "1-1 1-0", "1-1 2-2"),
        # Both corners of 0-1 want source word 1; the later target word comes first.
        ("grow-diag-strict", "0-1 1-0 1-2", "0-1", "0-1 1-2"),
    ],
)
def test_the_order_decides_between_links(how, forward, reverse, links):
    assert text(symmetrize(parse(forward), parse(reverse), how)) == links


GROWING = {
    # rows are target words, a neighbour needs one word without a link, and so do the last links
    "grow-diag": ("target", any, None),
    "grow-diag-final": ("target", any, any),
    "grow-diag-final-and": ("target", any, all),
    "grow-diag-strict": ("source", all, None),
    "grow-diag-final-strict": ("source", all, all),
}


def pseudocode(forward, reverse, how):
    """GROW-DIAG-FINAL as in the manual of Moses: all cells are visited in order, until nothing is added."""
    rows, free, final = GROWING[how]
    size = 1 + max((max(link) for link in forward | reverse), default=0)
    first, second = (flip(forward), flip(reverse)) if rows == "target" else (forward, reverse)
    cells = [(row, column) for row in range(size) for column in range(size)]
    offsets = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]
    if free is all:
        offsets[-2:] = offsets[:-3:-1]
    links = first & second

    def has_room(cell, free):
        return free([all(cell[0] != row for row, _ in links), all(cell[1] != column for _, column in links)])

    before = None
    while links != before:
        before = links
        for cell in cells:
            if cell in links:
                for offset in offsets:
                    neighbour = (cell[0] + offset[0], cell[1] + offset[1])
                    if neighbour in first | second and has_room(neighbour, free):
                        links = links | {neighbour}
    for direction in (first, second) if final else ():
        for cell in cells:
            if cell in direction and has_room(cell, final):
                links = links | {cell}
    return flip(links) if rows == "target" else links


def random_links(rng):
    """Links of two directions near a diagonal, of up to 8 words: at most one for each target, or each source word."""
    source, target, near = rng.randint(1, 8), rng.randint(1, 8), rng.random()

    def link(word, words, others):
        place = round(word * others / words) + rng.choice((0, 0, 0, 1, -1)) if rng.random() < near else rng.randrange(8)
        return min(max(place, 0), others - 1)

    forward = frozenset((link(t, target, source), t) for t in range(target) if rng.random() < 0.85)
    reverse = frozenset((s, link(s, source, target)) for s in range(source) if rng.random() < 0.85)
    return forward, reverse


@pytest.mark.parametrize("how", GROWING)
def test_growing_is_that_of_the_pseudocode(how):
    rng = random.Random(how)
    for _ in range(1000):
        forward, reverse = random_links(rng)
        assert symmetrize(forward, reverse, how) == pseudocode(forward, reverse, how)


@pytest.mark.parametrize("how", GROWING)
@given(LINKS, LINKS)
def test_so_it_is_where_words_have_several_links(how, forward, reverse):
    assert symmetrize(forward, reverse, how) == pseudocode(forward, reverse, how)


def test_strict_gives_no_word_a_second_link():
    rng = random.Random(1)
    for _ in range(200):
        for how in ("grow-diag-strict", "grow-diag-final-strict"):
            forward, reverse = random_links(rng)
            links = symmetrize(forward, reverse, how)
            assert len({s for s, _ in links}) == len({t for _, t in links}) == len(links)


def test_growing_goes_on_from_what_was_added():
    forward, reverse = parse("0-0 1-1 2-2 3-3"), parse("0-0")
    assert symmetrize(forward, reverse, "grow-diag") == forward
    assert symmetrize(parse("0-0 2-2"), reverse, "grow-diag") == reverse


def test_final_and_takes_no_word_twice():
    assert text(symmetrize(parse("3-3"), parse("3-4"))) == "3-3"


@given(LINKS, LINKS)
def test_each_lies_between_intersection_and_union(forward, reverse):
    # Not within grow-diag-final: what it adds first may take the words of a link between two free ones.
    for last in ("grow-diag-final-and", "grow-diag-final"):
        hows = ("intersection", "grow-diag", last, "union")
        assert all(less <= more for less, more in pairwise(symmetrize(forward, reverse, how) for how in hows))
    hows = ("intersection", "grow-diag-strict", "grow-diag-final-strict", "union")
    assert all(less <= more for less, more in pairwise(symmetrize(forward, reverse, how) for how in hows))
    for how in HEURISTICS:
        assert symmetrize(forward, forward, how) == forward
    for how in ("intersection", "union"):
        assert symmetrize(flip(forward), flip(reverse), how) == flip(symmetrize(forward, reverse, how))


def test_another_name_is_refused():
    with pytest.raises(ConfigError, match="unknown symmetry 'grow'.*Did you mean 'grow-diag'?"):
        symmetrize(FORWARD, REVERSE, "grow")
