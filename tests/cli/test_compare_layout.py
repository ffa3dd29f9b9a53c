"""Two translations in a terminal: they fit, in any script, and what differs is seen."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.cli.compare import lay_out
from heedful.draw.terminal import columns
from heedful.evaluation.compare import ComparedSentence


def sentence(first, second, source="s", references=("r",)):
    return ComparedSentence("t.tsv:7", source, references, first, second, 31.25, 70.0)


def test_by_hand():
    text = lay_out(3, sentence("I see the cat", "I hear the cat now", references=("one", "two")), 80, False)
    assert text == (
        "3. t.tsv:7   A 31.2   B 70.0   difference -38.8\n"
        "source     s\n"
        "reference  one\n"
        "reference  two\n"
        "A          I [see] the cat\n"
        "B          I [hear] the cat [now]"
    )


def test_words_in_a_row_share_their_brackets_over_lines():
    text = lay_out(1, sentence("x " + "word " * 20, "x"), 40, False)
    assert text.count("[") == text.count("]") == 1
    assert [columns(line) <= 40 for line in text.splitlines()[1:]].count(False) == 0


def test_scripts_without_spaces_are_compared_by_characters():
    assert "A          我今天[晚]上去" in lay_out(1, sentence("我今天晚上去", "我今天早上去"), 80, False)


def test_colour_instead_of_brackets():
    text = lay_out(1, sentence("I see it", "I hear it"), 80, True)
    assert "[see]" not in text
    assert "I \x1b[1;35msee\x1b[0m it" in text
    assert "I \x1b[1;36mhear\x1b[0m it" in text


def test_nothing_moves_the_cursor():
    text = lay_out(1, sentence("a\x1b[2Jb", "\u202ea", source="x\ry\x07"), 80, False)
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", text)


@pytest.mark.parametrize("colour", [False, True])
@given(st.text(max_size=60), st.text(max_size=60))
@settings(max_examples=60, deadline=None)
def test_lines_fit_and_nothing_is_lost(colour, first, second):
    text = re.sub("\x1b\\[[0-9;]*m", "", lay_out(1, sentence(first, second), 40, colour))
    lines = text.split("\n")
    assert all(columns(line) <= 40 for line in lines[1:])
    if not first.split():
        assert "A          (nothing)" in lines
