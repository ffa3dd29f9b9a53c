"""How many tokens a vocabulary should have, from what can be counted in a text.

Ten times the running words give twice the pieces. Their number is bounded by that of the words that occur more than
once, because nothing is learned about a piece that occurs once; the characters come on top, since a script with
thousands of them needs them all. One vocabulary for two languages gets half as many again.

| pairs | running words of a side | pieces learned | for both languages |
|---|---|---|---|
| 200 | 1,600 | as many words as come twice | |
| 10,000 | 100,000 | 4,000 | 7,400 |
| 30,000 | 360,000 | 5,900 | 10,800 |
| 100,000 | 1,000,000 | 8,000 | 14,800 |
| 1,000,000 | 10,000,000 | 16,000 | 29,500 |
| 10,000,000 and more | 100,000,000 | 32,000 | 48,000 |

A vocabulary of whole words takes all up to 10,000, beyond that those that come twice, up to 50,000; one of characters
takes all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from math import log10
from unicodedata import normalize

from heedful.config import TextConfig
from heedful.errors import ConfigError
from heedful.text.codec import SPECIALS
from heedful.trace.trace import unspaced

LARGEST = 32_000
LEAST = len(SPECIALS) + 1
WORDS, MOST_WORDS = 10_000, 50_000
JOINT = 1.5


def check_size(config: TextConfig) -> None:
    """Raise ConfigError for a vocabulary with room for the special tokens only."""
    if 0 < config.size < LEAST:
        raise ConfigError(f"text.size is {config.size}, expected {LEAST} or more, or 0: chosen from the data")


@dataclass(frozen=True)
class TextCounts:
    """Running words, distinct words, those of them that came more than once, and distinct characters."""

    words: int
    types: int
    repeated: int
    characters: int


def count_texts(texts: Iterable[str], times: float = 1.0) -> TextCounts:
    """Count texts; of a sample, `times` says how many times as much there is in all.

    Words are what stands between white space; in scripts written without, each two characters that stand side by side.

    >>> count_texts(["the cat saw the dog", "我在吃饭"])
    TextCounts(words=7, types=7, repeated=1, characters=14)
    """
    parts: Counter[str] = Counter()
    for text in texts:
        parts.update(text.split())
    characters = set(chain.from_iterable(normalize("NFC", part) for part in parts))
    dense = {character for character in characters if unspaced(character)}
    words: Counter[str] = Counter()
    running = 0
    for part, count in parts.items():
        if dense.isdisjoint(part):
            words[part] += count
            running += count
        else:
            running += count * ((len(part) + 1) // 2)
            for begin in range(max(1, len(part) - 1)):
                words[part[begin : begin + 2]] += count
    repeated = sum(count > 1 for count in words.values())
    return TextCounts(round(running * times), len(words), repeated, len(characters))


def vocabulary_size(counts: TextCounts, kind: str, joint: bool = False) -> int:
    """Return the size of a vocabulary for texts with such counts; of both languages together if it is `joint`.

    >>> vocabulary_size(TextCounts(1_000_000, 60_000, 30_000, 100), "bpe")
    8064
    """
    base = len(SPECIALS) + 1 + counts.characters
    if kind in ("char", "letters"):
        return base
    if kind == "word":
        return base + min(counts.types, max(WORDS, counts.repeated), MOST_WORDS)
    learned = 4000 * 2 ** log10(max(counts.words, 1) / 100_000)
    learned = min(learned, LARGEST) if not joint else min(learned * JOINT, LARGEST * JOINT)
    size = base + int(min(learned, counts.repeated))
    return size - size % 64 if size >= 1024 else size  # products on a GPU like such numbers


def resolve_size(counts: TextCounts, config: TextConfig) -> TextConfig:
    """Return the settings with a size: their own, or one chosen from the counts of the texts."""
    return replace(config, size=config.size or vocabulary_size(counts, config.kind, config.joint))
