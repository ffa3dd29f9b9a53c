"""Which words of two texts differ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.report.changes import changes, pieces


def said(side):
    return ["".join("*" * piece.changed + piece.text) for piece in side]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("I am  eating.\n", ["I", "am", "eating."]),
        ("मैं खाना", ["मैं", "खाना"]),
        ("我喜欢北京。", ["我", "喜", "欢", "北", "京", "。"]),
        ("I like 北京 2024.", ["I", "like", "北", "京", "2024."]),
        ("ไปแล้ว", ["ไ", "ป", "แ", "ล้", "ว"]),  # a tone mark stays with its letter
        ("", []),
    ],
)
def test_a_text_is_cut_into_words_or_characters(text, wanted):
    assert [piece.text for piece in pieces(text)] == wanted


def test_what_was_glued_is_known():
    assert [piece.glued for piece in pieces("ab 北京 c")] == [False, False, True, False]


def test_differences_are_marked_on_both_sides():
    first, second = changes("I see the cat", "I hear the cat now")
    assert said(first) == ["I", "*see", "the", "cat"]
    assert said(second) == ["I", "*hear", "the", "cat", "*now"]


def test_another_form_of_a_letter_is_no_difference():
    assert not any(piece.changed for side in changes("caf\u00e9", "cafe\u0301") for piece in side)


@given(st.text(max_size=20), st.text(max_size=20))
def test_nothing_is_lost(first, second):
    for text, side in zip((first, second), changes(first, second), strict=True):
        joined = "".join(("" if piece.glued else " ") + piece.text for piece in side)
        assert joined.split() == "".join(("" if p.glued else " ") + p.text for p in pieces(text)).split()
        assert "".join(joined.split()) == "".join("".join(p.text for p in pieces(text)).split())
    assert all(not piece.changed for side in changes(first, first) for piece in side)
