"""What a person should know of many translations, said once on stderr when they are done."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from heedful.cli.decoding import as_options
from heedful.cli.options import say

__all__ = ["Notes"]

MOST, LONGEST = 20, 500  # kinds that are said, and characters of each: a service may send any


class Notes:
    """Notes on lines, and words that a model does not know; notes that differ only in their numbers are of one kind.

    `here` says whether the verb has the options of decoding that notes name; None leaves the names as they are.
    """

    def __init__(self, here: bool | None = True) -> None:
        self.here = here
        self.lines = 0
        self.kinds: dict[str, tuple[int, str, int]] = {}  # the first line, its note, how many lines
        self.words: dict[str, None] = {}

    def add(self, notes: Iterable[str], unknown: Iterable[str] = ()) -> None:
        """Take the notes and the unknown words of the next line."""
        self.lines += 1
        self.words |= dict.fromkeys(unknown)
        for kind, note in {re.sub(r"\d[\d,]*", "#", note): note for note in notes}.items():
            first, text, count = self.kinds.get(kind, (self.lines, note[:LONGEST], 0))
            self.kinds[kind] = (first, text, count + 1)

    def say(self) -> None:
        """Say each kind once, with the first line that it is about and how many others there are."""
        for first, note, count in islice(self.kinds.values(), MOST):
            where = f"line {first:,}: " if self.lines > 1 else ""
            others = f"; the same in {count - 1:,} other line{'s' * (count > 2)}" if count > 1 else ""
            say(f"{where}{note if self.here is None else as_options(note, self.here)}{others}")
        if len(self.kinds) > MOST:
            say(f"and {len(self.kinds) - MOST:,} other kinds of notes")
        if self.words:
            some = ", ".join(islice(self.words, 5)) + (" …" if len(self.words) > 5 else "")
            many = f"{len(self.words):,} unknown word{'s' * (len(self.words) > 1)}"
            say(f"{many}, read as <unk>: {some}")
