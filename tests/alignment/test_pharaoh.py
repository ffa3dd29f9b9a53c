"""Links as lines: there and back, and errors that say where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.alignment import flip, parse, text
from heedful.errors import DataError

LINKS = st.frozensets(st.tuples(st.integers(0, 200), st.integers(0, 200)))


def test_a_line_by_hand():
    assert parse("0-0 2-1\t1-2 0-0\n") == {(0, 0), (1, 2), (2, 1)}
    assert parse("  ") == frozenset()
    assert parse("1-1 3-2", base=1) == {(0, 0), (2, 1)}


def test_text_sorts_by_number():
    assert text(frozenset({(10, 0), (2, 11), (2, 3)})) == "2-3 2-11 10-0"
    assert text(frozenset()) == ""


@given(LINKS)
def test_there_and_back(links):
    assert parse(text(links)) == links
    assert flip(flip(links)) == links
    assert flip(links) == {(t, s) for s, t in links}


@pytest.mark.parametrize(
    "item", ["0", "0-", "-0", "0--1", "0-1-2", "a-b", "0:1", "0?1", "1.0-2", "०-१", "9" * 5000 + "-0"]
)
def test_what_is_not_a_link_is_refused(item):
    with pytest.raises(DataError) as error:
        parse(f"0-0 {item}", "gold.txt, line 7")
    assert str(error.value) == (
        f"gold.txt, line 7: expected links such as '0-0 1-2', source word and target word, found '{item[:60]}'"
    )


@pytest.mark.parametrize("item", ["0-1", "1-0", "0-0"])
def test_words_before_the_first_are_refused(item):
    with pytest.raises(DataError, match=f"^f: words are counted from 1 here, found '{item[:60]}'$"):
        parse(f"1-1 {item}", "f", base=1)


def test_an_error_without_a_place_names_none():
    with pytest.raises(DataError, match="^expected links"):
        parse("x")
