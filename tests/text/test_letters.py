"""A vocabulary of letters: single words, each letter a token and a word of the trace; the rest of a text is copied."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.config import TextConfig
from heedful.errors import ConfigError, ModelError
from heedful.text import START, UNKNOWN, Codec
from heedful.text.letters import Letters
from heedful.text.segments import segments

ROMAN = Letters("abcdefghijklmnopqrstuvwxyz'", begin=True, lower=True)
HINDI = Letters([*"नमसत", "\u094d", "\u0947"])


def words(text: str, codec: Letters = ROMAN) -> list[str]:
    return [text[start:end] for start, end in codec.parts(text)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("namaste", ["namaste"]),
        ("  Namaste,  DUNIYA! ", ["Namaste", "DUNIYA"]),
        ("well-known 'quoted' don't", ["well", "known", "quoted", "don", "t"]),
        ("(a) [b] c? d... \u2018e\u2019", ["a", "b", "c", "d", "e"]),
        ("e@mail.com http://a.b/c x.y", []),
        ("abc1 12 café naïve नमस्ते", []),
        ("a_b a/b a:b", []),
        ("a नमस्ते b", ["a", "b"]),
        ("", []),
        ("।!?", []),
        ("a\tb\nc", ["a", "b", "c"]),
    ],
)
def test_words_of_a_text(text, wanted):
    assert words(text) == wanted


def test_marks_are_letters():
    assert words("नमस्ते, मत! नाम", HINDI) == ["नमस्ते", "मत"]


@given(st.text(max_size=40))
def test_words_are_in_order_and_have_known_letters_only(text):
    spans = ROMAN.parts(text)
    assert all(a < b for a, b in spans)
    assert all(before <= after for (_, before), (after, _) in pairwise(spans))
    for start, end in spans:
        assert UNKNOWN not in ROMAN.encode(text[start:end]).ids


@given(st.text(max_size=20))
def test_any_text_is_encoded_with_a_span_for_each_token(text):
    encoded = ROMAN.encode(text)
    assert len(encoded.ids) == len(encoded.spans) == 2 + sum(not character.isspace() for character in text)
    assert encoded.ids[0] == START
    assert ROMAN.ids([text]) == [encoded.ids]


def test_segments_are_words_with_or_without_sentences():
    for sentences in (True, False):
        found = segments(["Ab. Cd ef", "12"], ROMAN, 10, sentences)
        assert [(one.number, one.text, one.start) for one in found] == [(0, "Ab", 0), (0, "Cd", 4), (0, "ef", 7)]


def test_a_word_that_is_too_long_is_cut_with_a_note():
    found = segments(["abcdefghij"], ROMAN, 6)
    assert "".join(one.text for one in found) == "abcdefghij"
    assert all(len(one.encoded.ids) <= 6 and one.notes for one in found)


def test_each_letter_is_a_word_of_a_trace():
    text = ROMAN.trace("Abc", ROMAN.encode("Abc"))
    assert [word.text for word in text.words] == ["<s>", "A", "b", "c", "</s>"]
    assert [word.text for word in text.written] == ["A", "b", "c"]
    read = HINDI.read([*HINDI.encode("नमस्ते").ids])
    assert read.text == "नमस्ते"
    assert [word.text for word in read.words] == ["न", "म", "स", "\u094d", "त", "\u0947", "</s>"]


def test_what_is_not_read_has_special_tokens_only():
    text = ROMAN.unread("12 34")
    assert (text.text, text.tokens, text.spans) == ("12 34", ("<s>", "</s>"), ((5, 5), (5, 5)))


def test_it_is_dumped_and_parsed():
    for codec in (ROMAN, HINDI):
        again = Codec.parse(codec.dump())
        assert isinstance(again, Letters)
        assert (again.letters, again.begin, again.lower) == (codec.letters, codec.begin, codec.lower)


@pytest.mark.parametrize(
    "dump",
    [
        '{"letters": ["a", "a"], "begin": true, "lower": true}',
        '{"letters": ["a", 1], "begin": true, "lower": true}',
        '{"letters": "ab", "begin": true, "lower": true}',
        '{"letters": [""], "begin": true, "lower": true}',
        '{"letters": ["a b"], "begin": true, "lower": true}',
        '{"letters": ["aaaaaaaaaaaaaaaaaaaaa"], "begin": true, "lower": true}',
        '{"letters": ["a"], "begin": 1, "lower": true}',
        '{"letters": ["a"]}',
        '{"letters": ["a"], "begin": true, "lower": true',
    ],
)
def test_a_damaged_dump_is_refused(dump):
    with pytest.raises(ModelError):
        Codec.parse(dump)


def test_it_is_learned_from_words():
    codec = Codec.train(["abba", "a cab"], TextConfig(kind="letters"))
    assert isinstance(codec, Letters)
    assert codec.letters == ("a", "b", "c")
    assert Codec.train(["abba", "cab"], TextConfig(kind="letters", size=6)).dump() == Letters("ab").dump()
    with pytest.raises(ConfigError, match="regularise"):
        Codec.train(["ab"], TextConfig(kind="letters", regularise=0.1))
