"""Words, spans and texts of tokens equal the definitions, one character at a time, for texts of all scripts."""

from __future__ import annotations

import pickle
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizer_samples import CODECS, FRAGMENTS

from heedful.text import END, UNKNOWN, Codec, merge
from heedful.text.codec import token_spans
from heedful.trace import Text, Word
from heedful.trace.trace import OTHER_SPACES, unspaced

Span = tuple[int, int]
TEXTS = st.lists(FRAGMENTS | st.text(max_size=3), max_size=8).map("".join)
SCRIPTS = "CJK,HIRAGANA,KATAKANA,THAI,LAO,KHMER,MYANMAR,TIBETAN,BOPOMOFO,HALFWIDTH KATAKANA"
many = settings(max_examples=250, deadline=None)


def is_space(character: str) -> bool:
    return character.isspace() or character == "▁"


def has_no_spaces(character: str) -> bool:
    return not character.isascii() and unicodedata.name(character, "").startswith(tuple(SCRIPTS.split(",")))


def together(text: str, before: Span, start: int) -> bool:
    """Whether a token that begins at `start` goes on with the word of the token before it."""
    if any(is_space(c) for c in text[before[0] : start]):
        return False
    if before[0] == before[1] or start >= len(text):
        return True
    return not (has_no_spaces(text[start]) or has_no_spaces(text[before[1] - 1]))


def words_of(text: str, spans: Sequence[Span]) -> tuple[Word, ...]:
    """The definition of `merge`."""
    groups: list[Span] = []
    for i, (start, _) in enumerate(spans[:-1]):
        if i and together(text, spans[i - 1], start):
            groups[-1] = (groups[-1][0], i + 1)
        else:
            groups.append((i, i + 1))
    words = []
    for first, last in groups:
        start, end = spans[first][0], max(end for _, end in spans[first:last])
        words.append(Word(text[start:end], start, end, first, last))
    return (*words, Word("</s>", len(text), len(text), len(spans) - 1, len(spans)))


def spans_of(text: str, offsets: Sequence[Span], tokens: Sequence[str]) -> list[Span]:
    """The definition of `token_spans`."""
    starts = [*(start for start, _ in offsets[1:]), len(text)]
    spans, first, last = [], 0, 0
    for (start, end), following, token in zip(offsets, starts, tokens, strict=False):
        while end < following and not is_space(text[end]):
            end += 1
        while start < end and is_space(text[start]):
            start += 1
        while start < end and is_space(text[end - 1]):
            end -= 1
        end = start if token == "▁" else end
        if start < first or end < last:
            start = end = last
        first, last = start, end
        spans.append((start, end))
    return spans


def text_of(codec: Codec, ids: Sequence[int], copied: Mapping[int, str]) -> Text:
    """The definition of `Codec.read`."""
    ids = tuple(ids)
    if not ids or ids[-1] != END:
        ids += (END,)
    tokens = tuple(codec.token(i) for i in ids)
    text, spans = "", []
    for place, (index, token) in enumerate(zip(ids[:-1], tokens, strict=False)):
        plain = token.replace("▁", " ")
        if index == UNKNOWN:
            plain = codec.gap + copied.get(place, token)
        plain = plain if text else plain.lstrip(" ")
        start = len(text) + len(plain) - len(plain.lstrip(" "))
        text += plain
        spans.append((start, len(text)))
    text = text.rstrip(" ")
    spans = [(min(start, len(text)), min(end, len(text))) for start, end in [*spans, (len(text), len(text))]]
    return Text(text, tokens, tuple(spans), words_of(text, spans))


@st.composite
def texts_with_spans(draw):
    """A text, and spans in it in any order, also empty ones, each beginning before its end."""
    text = draw(TEXTS)
    places = st.integers(0, len(text))
    spans = draw(st.lists(st.tuples(places, places).map(lambda span: tuple(sorted(span))), max_size=8))
    return text, [*(spans if draw(st.booleans()) else sorted(spans)), (len(text), len(text))]


@many
@given(texts_with_spans())
@example(("a 我们", [(0, 1), (2, 2), (2, 3), (3, 4), (4, 4)]))
@example(("我a", [(0, 1), (2, 2), (1, 2), (2, 2)]))
def test_words_are_those_of_the_definition(given_):
    text, spans = given_
    assert merge(text, spans) == words_of(text, spans)


@many
@given(texts_with_spans(), st.data())
def test_spans_are_those_of_the_definition(given_, data):
    text, (*offsets, _) = given_
    tokens = data.draw(st.lists(st.sampled_from(("▁", "▁a", "a")), min_size=len(offsets), max_size=len(offsets)))
    assert token_spans(text, offsets, tokens) == spans_of(text, offsets, tokens)


@pytest.mark.parametrize("kind", CODECS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_reading_is_that_of_the_definition(kind, data):
    codec = CODECS[kind]
    ids = data.draw(st.lists(st.integers(0, len(codec) - 1) | st.just(UNKNOWN), max_size=10))
    copied = data.draw(st.dictionaries(st.integers(0, 9), TEXTS, max_size=3))
    found, wanted = codec.read(ids, copied), text_of(codec, ids, copied)
    assert (found, found.words) == (wanted, wanted.words)
    assert codec.decode(ids) == text_of(codec, ids, {}).text


@pytest.mark.parametrize("kind", CODECS)
@settings(max_examples=100, deadline=None)
@given(text=TEXTS)
def test_a_given_text_is_that_of_the_definition(kind, text):
    codec = CODECS[kind]
    (pieces,) = codec._cut([text])
    encoded = codec.encode(text)
    assert list(encoded.spans[:-1]) == spans_of(text, pieces.offsets, pieces.tokens)
    assert codec.trace(text, encoded).words == words_of(text, encoded.spans)


def test_every_character():
    """What separates words, and which scripts are written without spaces."""
    characters = [chr(i) for i in range(sys.maxunicode + 1)]
    text = "".join(characters)
    assert [c == " " for c in OTHER_SPACES.sub(" ", text)] == [is_space(c) for c in characters]
    unspaced.cache_clear()
    few = [c for c in characters if c < "\u3400" or c in "一我𠀀\uac00😀"]
    assert [unspaced(c) for c in few] == [has_no_spaces(c) for c in few]


def test_words_are_merged_when_asked_for(monkeypatch):
    calls = []
    monkeypatch.setattr("heedful.trace.trace.merge", lambda *given: calls.append(given) or merge(*given))
    codec = CODECS["bpe"]
    for text in (codec.read(codec.encode("I am").ids), codec.trace("I am", codec.encode("I am"))):
        calls.clear()
        again = pickle.loads(pickle.dumps(text))
        assert not calls
        assert [word.text for word in text.words] == ["I", "am", "</s>"]
        assert text.words is text.words
        assert len(calls) == 1
        assert text == again == Text(text.text, text.tokens, text.spans, text.words)
        assert replace(text, words=()).words == ()
        with pytest.raises(AttributeError, match="sentences"):
            _ = text.sentences
