"""Cleaning sentence pairs for training, and the report of what was dropped and changed.

A clean sentence is in NFC, its words are separated by one plain space, and it has no control characters and no
invisible format characters. ZERO WIDTH JOINER and NON-JOINER stay: they are spelling in Indic scripts and Persian.
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

DROPPED = {
    "blank line": "a blank line",
    "empty side": "an empty side",
    "empty caption": "an empty caption",
    "too long": "a side has too many characters (data.max_characters)",
    "length ratio": "one side is many times as long as the other (data.max_ratio)",
    "duplicate": "repeated (data.duplicates=keep keeps it)",
}
CHANGED = {
    "byte order mark": "removed a byte order mark",
    "carriage return": "removed a carriage return at the end",
    "control characters": "removed control characters",
    "invisible characters": "removed invisible characters",
    "not NFC": "normalized letters with marks (NFC)",
    "odd spaces": "replaced tabs, no-break and other spaces by plain spaces",
    "extra spaces": "removed extra spaces",
}
REASONS = (*DROPPED, *CHANGED)
EXAMPLES = 3
RATIO_FROM = 20  # characters: the ratio of short sentences is not informative, "好" is "good"

JOINERS = "\u200c\u200d"
CONTROLS = re.compile("[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff]+")
# Soft hyphens, marks of direction, word joiners, invisible operators, annotations: without them it reads the same.
INVISIBLE = re.compile("[\xad\u061c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufff9-\ufffb]+")
# A zero width space is not white space to Python, but it separates words.
ODD_SPACES = re.compile(f"[\u200b{BOM}]|[^\\S ]")
# Marks that compose with some letters only: the nukta, and Bengali, Tamil and Malayalam aa. Normalization of words with
# them is slow, so words known to be in NFC are remembered: four times as fast for Hindi.
SLOW_MARKS = ("\u093c", "\u09be", "\u0bbe", "\u0d3e")
KNOWN_WORDS: set[str] = set()
# In this order: a mark may compose with its letter after a character between them is removed.
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
    """The number of pairs read, of those dropped or changed for each reason, examples of them, and notes on files."""

    read: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    captions: bool = False

    @property
    def unit(self) -> str:
        """What is counted: pair, or caption."""
        return "caption" if self.captions else "pair"

    @property
    def kept(self) -> int:
        """The number of pairs that are kept."""
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
        """Add the report of more pairs."""
        self.read += other.read
        self.captions = self.captions or other.captions
        self.notes += other.notes
        for reason, count in other.counts.items():
            self.counts[reason] = self.counts.get(reason, 0) + count
            examples = self.examples.setdefault(reason, [])
            examples += other.examples.get(reason, [])[: EXAMPLES - len(examples)]

    def lines(self) -> list[str]:
        """Return the report as text: one line for each reason, and one for each example."""
        lines = [
            f"read {self.read:,} {self.unit}{'s' * (self.read != 1)}{' with an image' * self.captions}"
            + (f", kept {self.kept:,}" if self.kept < self.read else ""),
            *self.notes,
        ]
        for reason in REASONS:
            if reason in self.counts:
                lines.append(self._line(reason))
                lines += [f"  {example}" for example in self.examples.get(reason, [])]
        return lines

    def check_clean(self) -> None:
        """Raise DataError if any pair was dropped or changed."""
        if self.counts or self.notes:
            what = "captions" if self.captions else "sentence pairs"
            lines = [f"the {what} are not clean (strict):", *self.lines(), "fix these, or leave out strict"]
            error = DataError("\n".join(lines))
            error.multiline = True
            raise error

    def check_not_empty(self, name: str) -> None:
        """Raise DataError if no pair of the file `name` was kept."""
        blank, half = (self.counts.get(reason, 0) for reason in ("blank line", "empty side"))
        if (without := self.counts.get("empty caption", 0)) and blank + without == self.read:
            raise DataError(f"{name}: no image has a caption ({without:,} are empty)")
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
        count, action = self.counts[reason], "dropped" if reason in DROPPED else "cleaned"
        return f"{action} {count:,} {self.unit}{'s' * (count > 1)}: {(DROPPED | CHANGED)[reason]}"

    def _count(self, reason: str) -> bool:
        """Count one more, and return whether an example is wanted."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        return len(self.examples.setdefault(reason, [])) < EXAMPLES


@dataclass(frozen=True)
class Cleaned:
    """Pairs after cleaning, their lines, and the report."""

    sources: list[str]
    targets: list[str]
    lines: list[int]
    report: CleaningReport


def clean_captions(rows: Sequence[Raw], name: str, config: DataConfig) -> tuple[Cleaned, list[int]]:
    """Clean captions of the file `name`; return them with the numbers of the rows that are kept.

    The other side of a row is the name of an image, which stays as it is. Rules that compare both sides do not apply.
    """
    kept: list[int] = []
    targets: list[str] = []
    report = CleaningReport(len(rows), captions=True)
    for number, (line, image, raw) in enumerate(rows):
        caption, why = (raw, ()) if _is_clean(raw) else clean_text(raw)
        if not caption:
            report.drop("empty caption" if image else "blank line", f"{name}:{line}", image, caption)
        elif len(caption) > config.max_characters:
            report.drop("too long", f"{name}:{line}", image, caption)
        else:
            kept.append(number)
            targets.append(caption)
            for reason in why:
                report.change(reason, f"{name}:{line}", raw, caption)
    sources, lines = [rows[number].source for number in kept], [rows[number].line for number in kept]
    return Cleaned(sources, targets, lines, report), kept


def clean(rows: Sequence[Raw], name: str, config: DataConfig) -> Cleaned:
    """Clean pairs of the file `name`. Duplicates are not dropped here: they may be in different files."""
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
    r"""Return a clean sentence, and the reasons for which it was changed.

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
    """Whether a text is clean for sure; False if it may need a change."""
    return (
        (text.isprintable() or text.replace(JOINERS[0], "").replace(JOINERS[1], "").isprintable())
        and "  " not in text
        and text[:1] != " "
        and text[-1:] != " "
        and (text.isascii() or _is_nfc(text))
    )


def _is_nfc(text: str) -> bool:
    """Whether a text is in NFC."""
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


def _show(text: str, position: int = 0, length: int = 40) -> str:
    """Return the part of a text around a position, with invisible characters as escapes."""
    start = max(0, min(position - length // 2, len(text) - length))
    part = text[start : start + length]
    shown = "".join(c if c.isprintable() or c in JOINERS else repr(c)[1:-1] for c in part)
    return f"'{'…' * (start > 0)}{shown}{'…' * (start + length < len(text))}'"
