"""Comparisons of sentences and numbers, in words."""

from hypothesis import given
from hypothesis import strategies as st

from heedful.metrics import same
from heedful.report.phrases import compare, count, duration, million, verdict

SENTENCES = st.lists(st.sampled_from(["a", "b", "c", "मैं"]), max_size=8).map(" ".join)


@given(SENTENCES, SENTENCES)
def test_a_comparison_holds_both_sentences(output, reference):
    parts = compare(output, reference)
    assert " ".join(p.words for p in parts if p.kind != "missing").split() == output.split()
    assert " ".join(p.words for p in parts if p.kind != "extra").split() == reference.split()
    assert (
        same(output, reference)
        == all(p.kind == "same" for p in parts)
        == (verdict(output, reference) == "Exactly right")
    )


def test_equal_letters_are_equal():
    assert same("लड\u093c\u0915\u0940", "ल\u095c\u0915\u0940")


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
