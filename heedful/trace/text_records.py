"""Source and target of a trace: a text, its tokens with character spans, and its words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from heedful.trace.json_checks import field_of, listed, whole_numbers

__all__ = ["END", "Text", "Word"]

PLACES = ("start", "end", "first", "last")
END = "</s>"  # the token, and the word, that ends a sentence


class Word(NamedTuple):
    """A word: its characters `text[start:end]` and its tokens `first:last`."""

    text: str
    start: int
    end: int
    first: int
    last: int

    @property
    def is_end(self) -> bool:
        """Whether this is `</s>`, the end of a sentence."""
        return self.text == END and self.start == self.end

    @property
    def is_mark(self) -> bool:
        """Whether the word is only punctuation."""
        return bool(self.text) and not self.is_end and all(unicodedata.category(c)[0] == "P" for c in self.text)


@dataclass(frozen=True)
class Text:
    """A text, its tokens with character spans, and its words.

    The last token and the last word are always `</s>`, with an empty span. A text of several sentences has one `</s>`
    for each.
    """

    text: str
    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    words: tuple[Word, ...]

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it."""
        return {
            "text": self.text,
            "tokens": list(self.tokens),
            "spans": [list(s) for s in self.spans],
            "words": [w._asdict() for w in self.words],
        }

    def spaced(self) -> Text:
        """Return the text with words as white space separates them, in every script, as Pharaoh lines count them.

        A word without tokens has `first` equal to `last`. Sentences without a space between them share a word, with
        the `</s>` inside.
        """
        words, at, ends = [], 0, self.ends
        for match in re.finditer(r"\S+", self.text):
            while at < len(self.tokens) and ends[at] and self.spans[at][0] <= match.start():
                words.append(self._end(at))
                at += 1
            first = at
            while at < len(self.tokens) - 1 and self.spans[at][0] < match.end():
                at += 1
            words.append(Word(match[0], match.start(), match.end(), first, at))
        return replace(self, words=(*words, *(self._end(i) for i in range(at, len(self.tokens)) if ends[i])))

    @property
    def ends(self) -> tuple[bool, ...]:
        """Which tokens end a sentence."""
        return tuple(t == END and a == b for t, (a, b) in zip(self.tokens, self.spans, strict=True))

    @property
    def written(self) -> tuple[Word, ...]:
        """The words without `</s>` and without tokens that are only a space."""
        return tuple(word for word in self.words if word.text and not word.is_end)

    def _end(self, at: int) -> Word:
        return Word(END, *self.spans[at], at, at + 1)

    @classmethod
    def join(cls, text: str, starts: Sequence[int], parts: Sequence[Text]) -> Text:
        """Return the text of several parts; `starts` are their first characters in it."""
        tokens = tuple(token for part in parts for token in part.tokens)
        spans, words, first = [], [], 0
        for begin, part in zip(starts, parts, strict=True):
            spans += [(begin + start, begin + end) for start, end in part.spans]
            words += [Word(w.text, begin + w.start, begin + w.end, first + w.first, first + w.last) for w in part.words]
            first += len(part.tokens)
        return cls(text, tokens, tuple(spans), tuple(words))

    @classmethod
    def build(cls, plain: Mapping[str, Any], where: str = "") -> Text:
        """Return the text that `plain` was made from; `where` is the prefix of error messages."""
        lists = {name: listed(field_of(plain, name, where), f"{where}{name}") for name in ("tokens", "spans", "words")}
        at = f"{where}words: "
        return cls(
            str(field_of(plain, "text", where)),
            tuple(map(str, lists["tokens"])),
            tuple((i, j) for i, j in (whole_numbers(span, f"{where}spans", 2) for span in lists["spans"])),
            tuple(
                Word(
                    str(field_of(word, "text", at)), *whole_numbers([field_of(word, n, at) for n in PLACES], at[:-2], 4)
                )
                for word in lists["words"]
            ),
        )
