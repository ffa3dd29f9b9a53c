"""Cleaning sentence pairs for training: what was dropped, what was changed, and the words to say so.

A clean sentence is in NFC; its words are separated by one plain space; it holds no control characters, and no format
characters that cannot be seen. ZERO WIDTH JOINER and NON-JOINER stay: they are spelling in Indic scripts and Persian.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from heedful.config import DataConfig
from heedful.data.files import BOM
from heedful.data.formats import Raw
from heedful.errors import DataError

__all__ = ["CHANGED", "DROPPED", "REASONS", "Cleaned", "CleaningReport", "clean", "clean_text"]

# What is said of one pair, and of several.
DROPPED = {
    "blank line": ("blank line", "blank lines"),
    "empty side": ("pair with an empty side", "pairs with an empty side"),
    "too long": (
        "pair with a side of too many characters (data.max_characters)",
        "pairs with a side of too many characters (data.max_characters)",
    ),
    "length ratio": (
        "pair with one side many times as long as the other (data.max_ratio)",
        "pairs with one side many times as long as the other (data.max_ratio)",
    ),
    "duplicate": (
        "pair that came before (data.duplicates=keep keeps it)",
        "pairs that came before (data.duplicates=keep keeps them)",
    ),
}
CHANGED = {
    "byte order mark": "a byte order mark taken off",
    "carriage return": "a carriage return at the end taken off",
    "control characters": "control characters taken out",
    "invisible characters": "characters that cannot be seen taken out",
    "not NFC": "letters with marks brought into one form (NFC)",
    "odd spaces": "tabs, no-break and other spaces made plain",
    "extra spaces": "extra spaces taken out",
}
REASONS = (*DROPPED, *CHANGED)
EXAMPLES = 3
RATIO_FROM = 20  # characters: of short sentences the ratio says nothing, "好" is "good"

JOINERS = "\u200c\u200d"
CONTROLS = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff]+")
# Soft hyphens, marks of direction, word joiners, invisible operators, annotations: without them it reads the same.
INVISIBLE = re.compile("[\xad\u061c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufff9-\ufffb]+")
# A zero width space is no white space to Python, but it stands between two words all the same.
ODD_SPACES = re.compile(f"[\u200b{BOM}]|[^\\S ]")
# Marks that melt with some letters and not with others: the nukta, and Bengali, Tamil and Malayalam aa. Words with them
# that are in NFC are kept, in memory only: that is four times as fast for Hindi.
SLOW_MARKS = ("\u093c", "\u09be", "\u0bbe", "\u0d3e")
KNOWN_WORDS: set[str] = set()
# Each reason with what is done about it, in this order: a mark may meet its letter when what was between them is gone.
STEPS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("byte order mark", lambda text: text.lstrip(BOM)),
    ("carriage return", lambda text: text.rstrip("\r")),
    ("control characters", lambda text: CONTROLS.sub("", text)),
    ("invisible characters", lambda text: INVISIBLE.sub("", text)),
    ("not NFC", lambda text: unicodedata.normalize("NFC", text)),
    ("odd spaces", lambda text: ODD_SPACES.sub(" ", text)),
    ("extra spaces", lambda text: " ".join(text.split())),
)
STEPS_IF_PRINTABLE = tuple(step for step in STEPS if step[0] in ("not NFC", "extra spaces"))


@dataclass
class CleaningReport:
    """How many pairs were read, how many were dropped or changed for each reason, and the first of them.

    `notes` are on whole files.
    """

    read: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def kept(self) -> int:
        """How many pairs are left."""
        return self.read - sum(self.counts.get(reason, 0) for reason in DROPPED)

    def drop(self, reason: str, where: str, source: str, target: str) -> None:
        """Count a pair that is dropped; `where` is the file and the line."""
        if self._count(reason):
            text = f": {_show(source)} → {_show(target)}" if source or target else ""
            self.examples[reason].append(f"{where}{text}")

    def change(self, reason: str, where: str, before: str, after: str) -> None:
        """Count a pair with a side that was changed."""
        if self._count(reason):
            differs = (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b)
            self.examples[reason].append(f"{where}: {_show(before, next(differs, len(after)))}")

    def add(self, other: CleaningReport) -> None:
        """Add what was found in the pairs that follow."""
        self.read += other.read
        self.notes += other.notes
        for reason, count in other.counts.items():
            self.counts[reason] = self.counts.get(reason, 0) + count
            known = self.examples.setdefault(reason, [])
            known += other.examples.get(reason, [])[: EXAMPLES - len(known)]

    def lines(self) -> list[str]:
        """Return what to say to a person: one line for each reason, and one for each example."""
        said = [
            f"read {self.read:,} pair{'s' * (self.read != 1)}"
            + (f", kept {self.kept:,}" if self.kept < self.read else ""),
            *self.notes,
        ]
        for reason in REASONS:
            if reason in self.counts:
                said.append(self._line(reason))
                said += [f"  {example}" for example in self.examples.get(reason, [])]
        return said

    def refuse(self) -> None:
        """Refuse pairs of which any was dropped or changed."""
        if self.counts or self.notes:
            error = DataError("the sentence pairs are not clean, as --strict asks for:\n" + "\n".join(self.lines()))
            error.multiline = True
            raise error

    def refuse_empty(self, name: str) -> None:
        """Refuse a file of which no pair was kept; `name` is what it is called."""
        blank, half = (self.counts.get(reason, 0) for reason in ("blank line", "empty side"))
        if not self.read:
            raise DataError(f"{name}: empty, expected sentence pairs")
        if blank == self.read:
            raise DataError(f"{name}: only blank lines ({blank:,}), expected sentence pairs")
        if blank + half == self.read:
            raise DataError(f"{name}: no pair has both a source and a target ({half:,} have one empty side)")
        if not self.kept:
            dropped = "; ".join(self._line(reason) for reason in DROPPED if reason in self.counts)
            raise DataError(f"{name}: no sentence pair is left; {dropped}")

    def _line(self, reason: str) -> str:
        count = self.counts[reason]
        if reason in DROPPED:
            return f"dropped {count:,} {DROPPED[reason][count > 1]}"
        return f"cleaned {count:,} pair{'s' * (count > 1)}: {CHANGED[reason]}"

    def _count(self, reason: str) -> bool:
        """Count once more, and return whether an example is wanted."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        return len(self.examples.setdefault(reason, [])) < EXAMPLES


@dataclass(frozen=True)
class Cleaned:
    """Pairs after cleaning, the lines on which they stand, and what was done."""

    sources: list[str]
    targets: list[str]
    lines: list[int]
    report: CleaningReport


def clean(rows: Sequence[Raw], name: str, config: DataConfig) -> Cleaned:
    """Clean pairs; `name` is the file's, for the report. Duplicates are left to whoever sees all files."""
    sources: list[str] = []
    targets: list[str] = []
    lines: list[int] = []
    report = CleaningReport(len(rows))
    most, ratio = config.max_characters, config.max_ratio
    for line, raw_x, raw_y in rows:
        x, why_x = (raw_x, ()) if _is_clean(raw_x) else clean_text(raw_x)
        y, why_y = (raw_y, ()) if _is_clean(raw_y) else clean_text(raw_y)
        long, short = (len(x), len(y)) if len(x) > len(y) else (len(y), len(x))
        if not short:
            report.drop("empty side" if long else "blank line", f"{name}:{line}", x, y)
        elif long > most:
            report.drop("too long", f"{name}:{line}", x, y)
        elif long > RATIO_FROM and long > ratio * short:
            report.drop("length ratio", f"{name}:{line}", x, y)
        else:
            sources.append(x)
            targets.append(y)
            lines.append(line)
            for reason in why_x:
                report.change(reason, f"{name}:{line}", raw_x, x)
            for reason in why_y:
                if reason not in why_x:
                    report.change(reason, f"{name}:{line}", raw_y, y)
    return Cleaned(sources, targets, lines, report)


def clean_text(text: str) -> tuple[str, tuple[str, ...]]:
    r"""Return a sentence as training sees it, and the reasons for which it was changed.

    >>> clean_text("l\u2019e\u0301te\u0301\u00a0: 30\u202f\u00b0C ")
    ('l’été : 30 °C', ('not NFC', 'odd spaces', 'extra spaces'))
    """
    reasons = []
    for reason, step in STEPS_IF_PRINTABLE if text.isprintable() else STEPS:
        after = step(text)
        if after != text:
            reasons.append(reason)
            text = after
            if _is_clean(text):
                break
    return text, tuple(reasons)


def _is_clean(text: str) -> bool:
    """Tell quickly that nothing is to be done; of what cannot be printed, all but joiners may need a closer look."""
    return (
        (text.isprintable() or text.replace(JOINERS[0], "").replace(JOINERS[1], "").isprintable())
        and "  " not in text
        and text[:1] != " "
        and text[-1:] != " "
        and (text.isascii() or _is_nfc(text))
    )


def _is_nfc(text: str) -> bool:
    """Tell whether a text is in NFC; one with marks that take Python long to judge is judged by the words it knows."""
    for mark in SLOW_MARKS:
        if mark in text:
            words = text.split(" ")
            if KNOWN_WORDS.issuperset(words):
                return True
            if not unicodedata.is_normalized("NFC", text):
                return False
            if len(KNOWN_WORDS) > 100_000:
                KNOWN_WORDS.clear()
            KNOWN_WORDS.update(words)
            return True
    return unicodedata.is_normalized("NFC", text)


def _show(text: str, place: int = 0, length: int = 40) -> str:
    """Return the part of a text around a place, with what cannot be seen written as an escape."""
    start = max(0, min(place - length // 2, len(text) - length))
    part = text[start : start + length]
    seen = "".join(c if c.isprintable() or c in JOINERS else repr(c)[1:-1] for c in part)
    return f"'{'…' * (start > 0)}{seen}{'…' * (start + length < len(text))}'"
