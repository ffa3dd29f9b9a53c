"""A vocabulary of letters, for models that read and write single words, as those that transliterate.

Each letter is a token, and in a trace it is a word of its own, so that pictures and links are between letters. White
space has no token: a text is read word by word (`Letters.parts`).
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from heedful.errors import ModelError
from heedful.files import parse_json
from heedful.text.codec import SPECIALS, START, UNKNOWN, Codec, Encoded, Pieces
from heedful.trace import Text
from heedful.trace.trace import Word

MARK = '{"letters": '  # how the dump of such a codec begins
LONGEST = 16  # characters of a letter
_PARTS = re.compile(r"\S+")
_JOINING = "-\u2010\u2011\u2012\u2013\u2014'’"  # between words that are read one by one; all other characters are not
_JOINERS = "\u200c\u200d"


class CutLetters(NamedTuple):
    """The ids and characters of a text."""

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]


class Letters(Codec):
    """A vocabulary of letters.

    With `begin`, each word begins with `<s>`; with `lower`, letters that are not in the vocabulary are read as small
    letters.

    >>> codec = Letters("abc", begin=True, lower=True)
    >>> encoded = codec.encode("Cab")
    >>> [codec.token(i) for i in encoded.ids], encoded.spans
    (['<s>', 'c', 'a', 'b', '</s>'], ((0, 0), (0, 1), (1, 2), (2, 3), (3, 3)))
    """

    def __init__(self, letters: Sequence[str], begin: bool = False, lower: bool = False) -> None:
        self.letters, self.begin, self.lower = tuple(letters), begin, lower
        self.known = {letter: i for i, letter in enumerate(self.letters, len(SPECIALS))}
        if len(self.known) < len(self.letters):
            twice = Counter(self.letters).most_common(1)[0][0]
            raise ModelError(f"the letter {twice[:LONGEST]!r} is in the vocabulary twice")
        for letter in self.letters:
            if not 1 <= len(letter) <= LONGEST or any(character.isspace() for character in letter):
                raise ModelError(f"{letter[:LONGEST]!r} in the vocabulary is not a letter")

    @classmethod
    def learn(cls, texts: Iterable[str], size: int) -> Letters:
        """Return the most frequent characters of texts, without white space; `size` counts special tokens."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update("".join(text.split()))
        ranked = sorted(counts, key=lambda letter: (-counts[letter], letter))
        return cls(ranked[: size - len(SPECIALS)])

    @classmethod
    def read_dump(cls, text: str) -> Letters:
        """Read what `dump` wrote."""
        parsed = parse_json(text, "the tokenizer cannot be read")
        keys = ("letters", "begin", "lower")
        if not isinstance(parsed, dict) or sorted(parsed) != sorted(keys):
            raise ModelError(f"the tokenizer cannot be read: expected the keys {', '.join(keys)}")
        letters, begin, lower = (parsed[key] for key in keys)
        if not isinstance(letters, list) or not all(isinstance(letter, str) for letter in letters):
            raise ModelError("the tokenizer cannot be read: its letters are not a list of strings")
        if not isinstance(begin, bool) or not isinstance(lower, bool):
            raise ModelError("the tokenizer cannot be read: begin and lower must be true or false")
        return cls(letters, begin, lower)

    def dump(self) -> str:
        """Return the letters as JSON."""
        record = {"letters": list(self.letters), "begin": self.begin, "lower": self.lower}
        return json.dumps(record, ensure_ascii=False)

    def __len__(self) -> int:
        return len(SPECIALS) + len(self.letters)

    def token(self, index: int) -> str:
        """Return the token with an id."""
        return SPECIALS[index] if index < len(SPECIALS) else self.letters[index - len(SPECIALS)]

    def _id(self, character: str) -> int:
        """Return the id of a character, in lower case if that alone is known."""
        if self.lower and character not in self.known:
            character = character.lower()
        return self.known.get(character, UNKNOWN)

    def _cut(self, texts: Sequence[str]) -> Sequence[Pieces]:
        cut = []
        for text in texts:
            places = [(i, i + 1) for i, character in enumerate(text) if not character.isspace()]
            ids = [self._id(text[i]) for i, _ in places]
            if self.begin:
                ids, places = [START, *ids], [(0, 0), *places]
            cut.append(CutLetters(ids, [self.token(i) for i in ids], places))
        return cut

    def trace(self, text: str, encoded: Encoded) -> Text:
        """Return a given string with its tokens and spans; each token is a word."""
        return by_letters(super().trace(text, encoded))

    def read(self, ids: Sequence[int], copied: object = None) -> Text:
        """Return the string that ids stand for, with the span of each; each token is a word."""
        return by_letters(super().read(ids))

    def parts(self, text: str) -> list[tuple[int, int]]:
        """Return the spans of the words in a text: each is translated by itself, and all else stays as it is.

        A word is a run of letters that are in the vocabulary. Punctuation around it stays, and so do dashes and
        apostrophes between two of them. What has any other character inside, as a digit, a letter that is not in the
        vocabulary, or an @, is no word.

        >>> text = "Ab, c-a! a1 b@c.a é"
        >>> [text[start:end] for start, end in Letters("abc", lower=True).parts(text)]
        ['Ab', 'c', 'a']
        """
        spans = []
        for part in _PARTS.finditer(text):
            runs = [match.span() for match in self._runs.finditer(text, *part.span())]
            inside = [text[a:b] for (_, a), (b, _) in pairwise(runs)]
            outside = text[part.start() : runs[0][0]] + text[runs[-1][1] : part.end()] if runs else "1"
            if not any(map(_is_letter, outside + "".join(inside))) and all(c in _JOINING for c in "".join(inside)):
                spans += runs
        return spans

    @cached_property
    def _runs(self) -> re.Pattern[str]:
        """The pattern of a run of known letters."""
        letters = {letter for letter in self.letters if len(letter) == 1 and _is_letter(letter)}
        letters |= {letter.upper() for letter in letters if self.lower and len(letter.upper()) == 1}
        return re.compile(f"[{re.escape(''.join(sorted(letters)))}]+" if letters else r"(?!)")


def _is_letter(character: str) -> bool:
    """Whether a character is a letter, a mark on one, a joiner or a digit."""
    return unicodedata.category(character)[0] in "LMN" or character in _JOINERS


def by_letters(text: Text) -> Text:
    """Return a text in which each token is a word of its own."""
    words = [
        Word(text.text[start:end] or (token if token in SPECIALS else ""), start, end, i, i + 1)
        for i, (token, (start, end)) in enumerate(zip(text.tokens, text.spans, strict=True))
    ]
    return replace(text, words=tuple(words))
