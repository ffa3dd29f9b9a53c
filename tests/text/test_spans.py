"""Spans refer to the string that was given, whatever its script and however it is composed."""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizer_samples import ANYTHING, CORPUS, folded, space

from heedful.config import TextConfig
from heedful.text import UNKNOWN, Codec

KINDS = ("word", "bpe", "unigram", "char")
FIXED = {kind: Codec.train(CORPUS, TextConfig(kind=kind, size=300)) for kind in KINDS}

# Marks out of order, letters in parts, letters that come apart, marks that say where to write from, and joiners.
ODD = st.sampled_from(
    [
        *"\u0323\u0307\u0301\u0345\u0327\u034f\u0f71\u0f72\u0f74\u09be\u0344\u2126\u212b\uf900\u0958\U0001d15e",
        *"\u200b\u200c\u200d\u200e\u200f\u202b\u202c\u2066\u2069\ufeff\ufe0f\u1100\u1161\u11a8\u09c7",
        *("q\u0307\u0323", "\u00f5\u0323", "\u1112\u1161\u11ab", "\u0ccb", "\u0dda", "שָׁלוֹם", "الْعَرَبِيَّةُ", "👩🏽\u200d🚀"),
        *("我们", "東京へ行く。", "カ\u3099", "ﾊﾟ", "สวัสดี", "क्षत्रिय", "पढ़ाई", "Ǆungla", "ﬁn"),
    ]
)
WIDE = st.lists(ANYTHING | ODD, max_size=6).map("".join)


def nfc(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def changes(text: str, at: int) -> bool:
    """Whether a letter is changed by normalising, with the marks behind it: those come in another order, too."""
    start, end = at, at + 1
    while start and unicodedata.combining(text[start]):
        start -= 1
    while end < len(text) and unicodedata.combining(text[end]):
        end += 1
    return nfc(text[start:end]) != text[start:end]


def groups(codec: Codec, text: str) -> list[tuple[list[str], int, int]]:
    """The fewest tokens side by side that are together what their spans are when normalised."""
    encoded = codec.encode(text)
    found: list[tuple[list[str], int, int]] = []
    tokens: list[str] = []
    begin = None
    for index, (start, end) in zip(encoded.ids[:-1], encoded.spans, strict=False):
        tokens.append(codec.token(index).replace("▁", ""))
        begin = start if begin is None else begin
        if nfc(text[begin:end]) == "".join(tokens):
            found.append((tokens, begin, end))
            tokens, begin = [], None
    assert not tokens, (tokens, begin)
    return found


@pytest.mark.parametrize("kind", KINDS)
@given(text=WIDE)
@example(text="e\u0301 x")
@example(text="\u00f5\u0323")
@example(text="I \u0301x")
@example(text="\u0301")
@settings(max_examples=80, deadline=None)
def test_every_character_has_one_token(kind, text):
    """In order, inside, apart, all covered; only a letter that comes apart may be shared, and its marks."""
    for codec in (FIXED[kind], Codec.train([text], TextConfig(kind=kind, size=300))):
        encoded = codec.encode(text)
        covered = [0] * len(text)
        starts, ends = zip(*encoded.spans, strict=True)
        assert starts[0] >= 0
        assert ends[-1] == len(text)
        assert all(start <= end for start, end in encoded.spans)
        assert list(starts) == sorted(starts)
        assert list(ends) == sorted(ends)
        for start, end in encoded.spans:
            for i in range(start, end):
                covered[i] += 1
        for i, times in enumerate(covered):
            assert times == (not space(text[i])) or (times > 1 and changes(text, i))


@pytest.mark.parametrize("kind", KINDS)
@given(text=WIDE)
@example(text="\u00f5\u0323 x")
@example(text="\u095b\u0301")
@settings(max_examples=80, deadline=None)
def test_a_span_normalises_to_its_token(kind, text):
    """Only tokens that part a letter from its marks may do so together alone, where normalising changes these."""
    codec = Codec.train([text], TextConfig(kind=kind, size=300))
    assert UNKNOWN not in codec.encode(text).ids
    for tokens, start, end in groups(codec, text):
        shown = [token for token in tokens if token]
        assert len(shown) <= 1 or nfc(text[start:end]) != text[start:end], (tokens, start, end)
    assert codec.decode(codec.encode(text).ids) == folded(text)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("  Cafe\u0301\u00a0au lait!", ["Cafe\u0301", "au", "lait", "!"]),
        ("मैं  ज\u093cरूर पढ\u093cता हूँ।", ["मैं", "ज\u093cरूर", "पढ\u093cता", "हूँ", "।"]),
        ("\u095bरूर।", ["\u095bरूर", "।"]),
        ("我在吃饭。", ["我在吃饭", "。"]),
        ("カ\u3099イト\u3000です", ["カ\u3099イト", "です"]),
        ("שָׁלוֹם \u200fעולם!", ["שָׁלוֹם", "\u200f", "עולם", "!"]),
        ("الْعَرَبِيَّةُ، نعم", ["الْعَرَبِيَّةُ", "،", "نعم"]),
        ("\u1112\u1161\u11ab국", ["\u1112\u1161\u11ab국"]),
    ],
)
@pytest.mark.parametrize("kind", ["word", "bpe", "unigram"])
def test_scripts_by_hand(kind, text, pieces):
    """With a vocabulary that holds its words whole, each has the characters that were typed."""
    codec = Codec.train([text] * 50, TextConfig(kind=kind, size=2000))
    spans = [span for span in codec.encode(text).spans if span[0] < span[1]]
    assert [text[start:end] for start, end in spans] == pieces


@cache
def pieces() -> tuple[Codec, Any]:
    package = pytest.importorskip("sentencepiece")
    codec = Codec.train([*CORPUS, "fine office 株式会社"], TextConfig(kind="sentencepiece", size=300))
    return codec, package.SentencePieceNormalizer(rule_name="nmt_nfkc")


def test_sentencepiece_takes_a_line_end_for_a_letter():
    pytest.importorskip("sentencepiece")
    codec = Codec.train(["a\x85b \x85 a b"] * 3, TextConfig(kind="sentencepiece", size=50))
    encoded = codec.encode("a\x85b")
    shown = [(codec.token(i), span) for i, span in zip(encoded.ids, encoded.spans, strict=True)]
    assert [span for token, span in shown if token == "b"] == [(2, 3)]
    assert [span[0] - span[1] for token, span in shown if token == "\x85"] == [0]


DROPPED = {c for c in map(chr, range(32)) if c not in "\t\n\r"} | {"\x85"}


@given(text=WIDE)
@example(text="\u200d\u202f\u200b")
@example(text="\u212b\x85\u023a")
@example(text="ﬁ\u200f ㍿x")
@settings(max_examples=150, deadline=None)
def test_sentencepiece(text):
    """Every character that its normalisation keeps has a token, and one alone unless it is read as several.

    It takes away control characters, among them some that are white space elsewhere, and reads U+0085 as a letter.
    """
    codec, normalizer = pieces()
    encoded = codec.encode(text)
    covered = [0] * len(text)
    for start, end in encoded.spans:
        for i in range(start, end):
            covered[i] += 1
    assert list(encoded.spans) == sorted(encoded.spans)
    for character, times in zip(text, covered, strict=True):
        read = str(normalizer.Normalize(character)).strip(" ▁")
        if character in DROPPED:
            assert times <= 1
        elif space(character):
            assert times == 0
        elif read:
            assert times == 1 or (times > 1 and (len(read) > 1 or unicodedata.combining(character)))
