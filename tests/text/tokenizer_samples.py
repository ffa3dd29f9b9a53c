"""Texts that have broken tokenizers, and a codec of each kind."""

from __future__ import annotations

import unicodedata

from hypothesis import strategies as st

from heedful.config import TextConfig
from heedful.text import Codec

KINDS = ("word", "bpe", "unigram", "char")


CORPUS = [
    "मैं खाना खा रहा हूँ। क्या तुम ज़्यादा पढ़ते हो?",
    "I am eating. Don't you, café?",
    "我在吃饭。 東京へ",
    "مرحبا بالعالم،",
    "가나다 😀 👨‍👩‍👧",
]


CODECS = {kind: Codec.train(CORPUS, TextConfig(kind=kind, size=400)) for kind in KINDS}


# What has broken tokenizers: marks that compose, letters that decompose, joiners, all kinds of space, no space at all.
FRAGMENTS = st.sampled_from(
    [
        *(" ", "  ", "\t", "\r\n", "\u00a0", "\u3000", "\u2028", "\u202f", "\u0085", "▁"),
        *("मैं", "हूँ", "क्\u200dष", "ज\u093c", "\u095b", "पढ\u093cते", "श्री", "।"),
        *("e\u0301", "\u00e9", "cafe\u0301", "\u0301", "a\u0308\u0301", "\u1100\u1161\u11a8", "각"),
        *("我", "在吃饭", "。", "東京", "ภาษา", "かな", "ｶﾅ"),
        *("مرحبا", "بِسْمِ", "،", "می\u200cخواهم"),
        *("😀", "👨\u200d👩\u200d👧", "❤\ufe0f", "🇮🇳", "\U0001f44b\U0001f3fd"),
        *("I", "am", "don't", "it’s", "3.5", "</s>", "<pad>", "<unk>", "<s>", "\ufeff", "\u200b", "\x00", "\x1b"),
    ]
)


# U+001C to U+001F are white space to Python alone; a test of their own is below. Unassigned characters are left out
# because the Unicode tables of Python and of the tokenizer are of different years.
CHARACTERS = st.characters(exclude_categories=("Cs", "Cn"), exclude_characters="\x1c\x1d\x1e\x1f")


ANYTHING = st.lists(FRAGMENTS | CHARACTERS, max_size=10).map("".join)


def space(character: str) -> bool:
    return character.isspace() or character == "▁"


def folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).replace("▁", " ").split())
