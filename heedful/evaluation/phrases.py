"""Words for reports: differences between two texts, numbers, lists."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from heedful.draw.picture import number
from heedful.metrics import exact_match
from heedful.text.codec import unspaced
from heedful.text.graphemes import boundary_after

__all__ = [
    "LANGUAGES",
    "DiffPart",
    "DiffWord",
    "count",
    "diff",
    "diff_words",
    "duration",
    "listed",
    "mark_differences",
    "million",
    "percent",
    "tenth",
    "verdict",
]

LANGUAGES = {"hi": "Hindi", "en": "English", "de": "German", "fr": "French", "zh": "Chinese", "ar": "Arabic"}
ONES = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class DiffPart(NamedTuple):
    """Consecutive words that are the `same` as in the reference, `extra`, or `missing`."""

    kind: str
    words: str


def diff(output: str, reference: str) -> list[DiffPart]:
    """Return the differences of a translation from its reference, in the order of the words.

    >>> [tuple(part) for part in diff("I see the cat", "I hear the cat now")]
    [('same', 'I'), ('extra', 'see'), ('missing', 'hear'), ('same', 'the cat'), ('missing', 'now')]
    """
    written, wanted = _words(output), _words(reference)
    parts = []
    for tag, a, b, c, d in difflib.SequenceMatcher(None, written, wanted, autojunk=False).get_opcodes():
        if tag == "equal":
            parts.append(DiffPart("same", " ".join(written[a:b])))
            continue
        if b > a:
            parts.append(DiffPart("extra", " ".join(written[a:b])))
        if d > c:
            parts.append(DiffPart("missing", " ".join(wanted[c:d])))
    return parts


def verdict(output: str, reference: str) -> str:
    """Return in words whether a translation equals its reference.

    >>> verdict("I see it", "I see it"), verdict("I it", "I see it")
    ('Exactly right', 'Not the reference: one word missing')
    """
    if exact_match(output, reference):
        return "Exactly right"
    parts = diff(output, reference)
    extra, missing = (sum(len(p.words.split()) for p in parts if p.kind == kind) for kind in ("extra", "missing"))
    errors = [f"{count(missing, 'word')} missing"] if missing else []
    errors += [f"{count(extra, 'word' if not missing else '')} too many".replace("  ", " ")] if extra else []
    return "Not the reference: " + ", ".join(errors)


class DiffWord(NamedTuple):
    """A word, or a character of a script without spaces; `glued` means that no space precedes it."""

    text: str
    glued: bool = False
    changed: bool = False


def diff_words(text: str) -> list[DiffWord]:
    """Return the words that a text is compared by.

    >>> [piece.text for piece in diff_words("I like 北京.")]
    ['I', 'like', '北', '京', '.']
    """
    words = []
    for word in unicodedata.normalize("NFC", text).split():
        start = at = 0
        while at < len(word):
            end = boundary_after(word, at + 1, at)
            if end == len(word) or unspaced(word[at]) or unspaced(word[end]):
                words.append(DiffWord(word[start:end], glued=start > 0))
                start = end
            at = end
    return words


def mark_differences(first: str, second: str) -> tuple[list[DiffWord], list[DiffWord]]:
    """Return the words of two texts; those that the other does not have at that place are `changed`.

    >>> sides = mark_differences("I see the cat", "I hear the cat now")
    >>> [[word.text for word in side if word.changed] for side in sides]
    [['see'], ['hear', 'now']]
    """
    sides = diff_words(first), diff_words(second)
    left, right = ([piece.text for piece in side] for side in sides)
    for tag, a, b, c, d in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag != "equal":
            for side, begin, end in ((sides[0], a, b), (sides[1], c, d)):
                side[begin:end] = [piece._replace(changed=True) for piece in side[begin:end]]
    return sides


def _words(text: str) -> list[str]:
    return unicodedata.normalize("NFC", text).split()


def count(how_many: int, what: str) -> str:
    """Return a number of things; up to ten as a word.

    >>> count(1, "word"), count(2, "word"), count(12000, "pair")
    ('one word', 'two words', '12,000 pairs')
    """
    spelled = ONES[how_many] if 0 <= how_many < len(ONES) else f"{how_many:,}"
    return f"{spelled} {what}{'' if how_many == 1 or not what else 's'}".strip()


def percent(value: float) -> str:
    """Return a percentage.

    >>> percent(97.25), percent(100)
    ('97.2\\xa0%', '100\\xa0%')
    """
    return f"{number(value)}\u00a0%"


def tenth(value: float) -> str:
    """Return a percentage that stands in a column: always one digit after the point.

    >>> tenth(97.25), tenth(100)
    ('97.2\\xa0%', '100.0\\xa0%')
    """
    return f"{value:.1f}\u00a0%"


def million(value: int) -> str:
    """Return a large number.

    >>> million(1234567), million(999)
    ('1.23\\xa0million', '999')
    """
    return f"{value / 1e6:.2f}\u00a0million" if value >= 1_000_000 else f"{value:,}"


def duration(seconds: float) -> str:
    """Return a time.

    >>> duration(134.2), duration(9.26)
    ('2\\xa0min 14\\xa0s', '9.3\\xa0s')
    """
    if seconds < 60:
        return f"{number(seconds)}\u00a0s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}\u00a0min {rest}\u00a0s"


def listed(items: Sequence[str]) -> str:
    """Return several as one.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
