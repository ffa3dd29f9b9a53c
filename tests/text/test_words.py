"""Tokens to words."""

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.config import TextConfig
from heedful.text import Codec, count, merge
from heedful.trace import Word

KINDS = ("word", "bpe", "unigram", "char")
# Scripts written with spaces, so that white space alone says what a word is.
SPACED = st.text(st.sampled_from("abcé'.,-?1मैंहूँकखाि्\u200d\u200cπЖ가عرب،😀</s>"), min_size=1, max_size=6)
SPACES = st.text(st.sampled_from(" \t\u00a0\u3000\u2028"), min_size=1, max_size=3)
quick = settings(max_examples=60, deadline=None)


@st.composite
def sentences(draw):
    """A string, with its words."""
    words = draw(st.lists(SPACED, max_size=5))
    text = draw(st.just("") | SPACES) + "".join(w + draw(SPACES) for w in words)
    return text if draw(st.booleans()) else text.rstrip(), words


@st.composite
def cut_sentences(draw):
    """A string, its words, and spans that cut its words anywhere."""
    text, words = draw(sentences())
    spans, at = [], 0
    for word in words:
        begin = text.index(word, at)
        at = begin + len(word)
        inner = draw(st.sets(st.integers(begin + 1, at - 1))) if len(word) > 1 else set()
        if draw(st.booleans()):
            spans.append((begin, begin))  # a ▁ alone
        ends = [begin, *sorted(inner), at]
        spans += list(pairwise(ends))
    return text, words, [*spans, (len(text), len(text))]


@given(cut_sentences())
def test_pieces_become_the_words_of_the_white_space(given_):
    text, words, spans = given_
    assert [w.text for w in merge(text, spans)] == [*words, "</s>"]


@given(cut_sentences())
def test_words_share_out_all_tokens(given_):
    text, _, spans = given_
    words = merge(text, spans)
    assert words[0].first == 0
    assert words[-1].last == len(spans)
    assert all(a.last == b.first for a, b in pairwise(words))
    assert all(w.first < w.last for w in words)
    assert all(w.text == text[w.start : w.end] for w in words[:-1])
    assert words[-1] == Word("</s>", len(text), len(text), len(spans) - 1, len(spans))


def test_by_hand():
    # "खा ना" with a space typed twice; the second word in two pieces behind a ▁ of its own.
    assert merge("खा  नाव", [(0, 2), (4, 4), (4, 6), (6, 7), (7, 7)]) == (
        Word("खा", 0, 2, 0, 1),
        Word("नाव", 4, 7, 1, 4),
        Word("</s>", 7, 7, 4, 5),
    )


def test_two_tokens_of_one_letter():
    # U+095B comes apart into two tokens, both with its span.
    assert merge("\u095bा", [(0, 1), (0, 1), (1, 2), (2, 2)])[0] == Word("\u095bा", 0, 2, 0, 3)


@pytest.mark.parametrize(
    ("text", "ends", "words"),
    [
        ("我在吃饭", [1, 2, 4], ["我", "在", "吃饭"]),
        ("東京へ行く", [2, 3, 5], ["東京", "へ", "行く"]),
        ("ภาษาไทย", [4, 7], ["ภาษา", "ไทย"]),
        ("我用Python吃", [1, 2, 5, 8, 9], ["我", "用", "Python", "吃"]),
        ("한국어", [1, 2, 3], ["한국어"]),  # Korean is written with spaces
        ("नमस्ते", [1, 2, 3, 4, 6], ["नमस्ते"]),
    ],
)
def test_scripts_without_spaces(text, ends, words):
    spans = [*zip([0, *ends], ends, strict=False), (len(text), len(text))]
    assert [w.text for w in merge(text, spans)] == [*words, "</s>"]


def test_a_mark_alone_goes_with_what_follows_in_any_script():
    assert [w.text for w in merge("a 我们", [(0, 1), (2, 2), (2, 3), (3, 4), (4, 4)])] == ["a", "我", "们", "</s>"]


def test_nothing_but_the_end():
    assert merge("", [(0, 0)]) == (Word("</s>", 0, 0, 0, 1),)
    assert merge("  ", [(2, 2)]) == (Word("</s>", 2, 2, 0, 1),)


@pytest.mark.parametrize("kind", KINDS)
@given(sentences(), st.booleans())
@quick
def test_the_words_of_a_codec(kind, sentence, known):
    """Whether its tokens are known or not, the words of a sentence are those between white space."""
    text, words = sentence
    codec = Codec.train([text if known else "ab ba"], TextConfig(kind=kind))
    found = codec.trace(text, codec.encode(text)).words
    assert [unicodedata.normalize("NFC", w.text) for w in found] == [
        *(unicodedata.normalize("NFC", w) for w in words),
        "</s>",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_decomposed_words_are_whole(kind):
    text = "cafe\u0301 \u1112\u1161\u11ab x"
    codec = Codec.train([text], TextConfig(kind=kind))
    assert [w.text for w in codec.trace(text, codec.encode(text)).words] == [*text.split(), "</s>"]


@pytest.mark.parametrize(
    ("text", "words"),
    [("", 0), ("  ", 0), ("मैं खाना खा रहा हूँ", 5), ("a\u00a0b\u3000c\td", 4), ("don't stop.", 2), ("我在吃饭", 1)],
)
def test_count(text, words):
    assert count(text) == words
