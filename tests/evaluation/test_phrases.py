"""Differences between texts, and numbers in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.evaluation.page import count, diff, diff_words, duration, mark_differences, million, verdict
from heedful.metrics import exact_match

SENTENCES = st.lists(st.sampled_from(["a", "b", "c", "मैं"]), max_size=8).map(" ".join)


@given(SENTENCES, SENTENCES)
def test_a_comparison_holds_both_sentences(output, reference):
    parts = diff(output, reference)
    assert " ".join(p.words for p in parts if p.kind != "missing").split() == output.split()
    assert " ".join(p.words for p in parts if p.kind != "extra").split() == reference.split()
    assert (
        exact_match(output, reference)
        == all(p.kind == "same" for p in parts)
        == (verdict(output, reference) == "Exactly right")
    )


def test_equal_letters_are_equal():
    assert exact_match("लड\u093c\u0915\u0940", "ल\u095c\u0915\u0940")


def test_numbers_as_words():
    assert [count(n, "word") for n in (0, 1, 10, 11)] == ["no words", "one word", "ten words", "11 words"]
    assert verdict("a b c", "a") == "Not the reference: two words too many"
    assert verdict("a x", "a y z") == "Not the reference: two words missing, one too many"
    assert [duration(s) for s in (0.5, 59.97, 60, 3599.6)] == [
        "0.5\xa0s",
        "60\xa0s",
        "1\xa0min 0\xa0s",
        "60\xa0min 0\xa0s",
    ]
    assert million(999_999) == "999,999"


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
    assert [piece.text for piece in diff_words(text)] == wanted


def test_what_was_glued_is_known():
    assert [piece.glued for piece in diff_words("ab 北京 c")] == [False, False, True, False]


def test_differences_are_marked_on_both_sides():
    first, second = mark_differences("I see the cat", "I hear the cat now")
    assert said(first) == ["I", "*see", "the", "cat"]
    assert said(second) == ["I", "*hear", "the", "cat", "*now"]


def test_another_form_of_a_letter_is_no_difference():
    assert not any(piece.changed for side in mark_differences("caf\u00e9", "cafe\u0301") for piece in side)


@given(st.text(max_size=20), st.text(max_size=20))
def test_nothing_is_lost(first, second):
    for text, side in zip((first, second), mark_differences(first, second), strict=True):
        joined = "".join(("" if piece.glued else " ") + piece.text for piece in side)
        assert joined.split() == "".join(("" if p.glued else " ") + p.text for p in diff_words(text)).split()
        assert "".join(joined.split()) == "".join("".join(p.text for p in diff_words(text)).split())
    assert all(not piece.changed for side in mark_differences(first, first) for piece in side)
