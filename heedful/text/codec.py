"""What all tokenizers have in common: text to token ids with their spans, ids to text, tokens to words."""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from heedful.config import TextConfig
from heedful.errors import ConfigError
from heedful.trace import Text, Word

SPACE = "▁"  # stands for a space inside tokens, and so counts as one in a text

# Scripts written without spaces: there a token is the nearest thing to a word.
_UNSPACED = (
    "CJK",
    "HIRAGANA",
    "KATAKANA",
    "THAI",
    "LAO",
    "KHMER",
    "MYANMAR",
    "TIBETAN",
    "BOPOMOFO",
    "HALFWIDTH KATAKANA",
)


def count(text: str) -> int:
    """Return how many words a string has, in the sense of its white space.

    >>> count("मैं खाना खा रहा हूँ")
    5
    """
    return len(text.split())


def merge(text: str, spans: Sequence[tuple[int, int]]) -> tuple[Word, ...]:
    """Group tokens by the word their span lies in; the last token is `</s>` and a word of its own.

    Words are what white space separates; in scripts written without spaces, every token is one.

    >>> [w.text for w in merge("I am eating.", [(0, 1), (2, 4), (5, 8), (8, 11), (11, 12), (12, 12)])]
    ['I', 'am', 'eating.', '</s>']
    """
    groups: list[tuple[int, int]] = []
    for i, (start, _) in enumerate(spans[:-1]):
        if i and _together(text, spans[i - 1], start):
            groups[-1] = (groups[-1][0], i + 1)
        else:
            groups.append((i, i + 1))
    words = []
    for first, last in groups:
        start, end = spans[first][0], max(end for _, end in spans[first:last])
        words.append(Word(text[start:end], start, end, first, last))
    return (*words, Word("</s>", len(text), len(text), len(spans) - 1, len(spans)))


def is_space(character: str) -> bool:
    """Whether a character separates words."""
    return character.isspace() or character == SPACE


def _together(text: str, before: tuple[int, int], start: int) -> bool:
    """Whether a token that begins at `start` goes on with the word of the token before it."""
    if any(is_space(c) for c in text[before[0] : start]):
        return False
    if before[0] == before[1] or start >= len(text):
        return True
    return not (unspaced(text[start]) or unspaced(text[before[1] - 1]))


def unspaced(character: str) -> bool:
    """Whether a character is of a script that is written without spaces."""
    return not character.isascii() and unicodedata.name(character, "").startswith(_UNSPACED)


Numbers = npt.NDArray[np.int32]

SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
PAD, UNKNOWN, START, END = range(4)


CHANGING = ("bpe", "unigram")


def _unchanging(what: str) -> str:
    return (
        f"text.regularise: {what} cuts a word in one way only; text.kind={' and text.kind='.join(CHANGING)} "
        "cut it differently in every epoch"
    )


@dataclass(frozen=True)
class Encoded:
    """Token ids, ending with `</s>`, and the character span of each in the original string."""

    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]


class Pieces(Protocol):
    """What a string was cut into: ids, pieces, and the characters that each stands for, white space among them."""

    @property
    def ids(self) -> Sequence[int]:
        """The ids, without `</s>`."""
        ...

    @property
    def tokens(self) -> Sequence[str]:
        """The pieces themselves."""
        ...

    @property
    def offsets(self) -> Sequence[tuple[int, int]]:
        """Where each begins and ends in the original string."""
        ...


class Codec(ABC):
    """A trained tokenizer for one language (or both).

    >>> codec = Codec.train(["I am eating."], TextConfig(kind="word"))
    >>> encoded = codec.encode("I am  eating.")
    >>> [codec.token(i) for i in encoded.ids]
    ['▁I', '▁am', '▁eating', '.', '</s>']
    >>> encoded.spans
    ((0, 1), (2, 4), (6, 12), (12, 13), (13, 13))
    >>> codec.decode(encoded.ids)
    'I am eating.'
    """

    # A vocabulary of whole words has no ▁ of its own: there <unk> stands for a word with its space.
    gap = ""

    @staticmethod
    def train(texts: Iterable[str], config: TextConfig) -> Codec:
        """Learn a vocabulary of at most `config.size` tokens from texts.

        A size of 0 is chosen from these texts: see `heedful.text.size`.
        """
        from heedful.text.size import check_size, count_texts, resolve_size

        check_size(config)
        if config.size == 0:
            texts = list(texts)
            config = resolve_size(count_texts(texts), config)
        if config.regularise and config.kind not in CHANGING:
            raise ConfigError(_unchanging(f"text.kind={config.kind}"))
        if config.kind == "sentencepiece":
            from heedful.text.sentencepiece import SentencePieces

            return SentencePieces.learn(texts, config.size)
        from heedful.text.tokenizer import Tokens

        return Tokens.learn(texts, config)

    @staticmethod
    def parse(text: str) -> Codec:
        """Read what `dump` wrote."""
        from heedful.text.sentencepiece import MARK, SentencePieces
        from heedful.text.tokenizer import Tokens

        return SentencePieces.read_dump(text) if text.startswith(MARK) else Tokens.read_dump(text)

    @abstractmethod
    def dump(self) -> str:
        """Return the tokenizer as JSON."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def regular_tokens(self) -> int:
        """The number of tokens besides the special ones."""
        return len(self) - len(SPECIALS)

    @abstractmethod
    def token(self, index: int) -> str:
        """Return the token with an id."""

    @abstractmethod
    def _cut(self, texts: Sequence[str]) -> Sequence[Pieces]:
        """Cut whole texts."""

    def encode(self, text: str) -> Encoded:
        """Return the ids of a sentence and their spans, closed by `</s>`."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[Encoded]:
        """Encode many sentences, using all cores."""
        return [
            Encoded((*e.ids, END), (*_spans(text, e.offsets, e.tokens), (len(text), len(text))))
            for text, e in zip(texts, self._cut(texts), strict=True)
        ]

    def ids(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the ids of many sentences, each closed by `</s>`, without the spans, in half the time."""
        return [(*e.ids, END) for e in self._cut(texts)]

    def ids_and_lengths(self, texts: Sequence[str]) -> tuple[Numbers, Numbers]:
        """Return the ids of many sentences, one after the other, each closed by `</s>`, and how many each has."""
        rows = self.ids(texts)
        lengths = np.fromiter(map(len, rows), np.int32, len(rows))
        return np.fromiter((i for row in rows for i in row), np.int32, int(lengths.sum())), lengths

    def numbered(self, texts: Sequence[str]) -> tuple[list[str], npt.NDArray[np.uint32], Numbers]:
        """Return the distinct words of texts, the running words as indices into them, and how many each text has.

        A word is what is cut without regard to what stands beside it, as it stands after normalisation, with its ▁;
        `variants` cuts it. Long ones, and those of scripts without spaces, come in parts: the tokens they are cut into.
        """
        raise ConfigError(_unchanging("this vocabulary"))

    def words(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the words of each text, as `numbered` does.

        >>> Codec.train(["I am eating."], TextConfig(size=40)).words(["I  am!"])
        [['▁I', '▁am', '!']]
        """
        words, indices, lengths = self.numbered(texts)
        return [[words[i] for i in part] for part in np.split(indices, np.cumsum(lengths)[:-1])] if len(texts) else []

    def variants(
        self, words: Sequence[str], counts: Sequence[int], rate: float, seed: int
    ) -> tuple[Numbers, npt.NDArray[np.int64]]:
        """Cut each word plainly and then so many times by chance: ids without `</s>`, and how many each cut has.

        What is drawn for a word follows from the word, the rate (`text.regularise`) and the seed alone.
        """
        raise ConfigError(_unchanging("this vocabulary"))

    def head(self, text: str) -> tuple[int, ...]:
        """Return the ids of what stands at the beginning of a text and concerns all of it: the code of a language."""
        return ()

    def decode(self, ids: Sequence[int]) -> str:
        """Return the string that ids stand for."""
        return self.read(ids).text

    def read(self, ids: Sequence[int], copied: Mapping[int, str] | None = None) -> Text:
        """Return the string that ids stand for, with the span of each; the ids end with `</s>` or get one.

        `copied` says what to write for some that are unknown, by their place.
        """
        ids = tuple(ids)
        if not ids or ids[-1] != END:
            ids += (END,)
        tokens = tuple(self.token(i) for i in ids)
        text, spans = "", []
        for place, (index, token) in enumerate(zip(ids[:-1], tokens, strict=False)):
            plain = token.replace(SPACE, " ")
            if index == UNKNOWN:
                plain = self.gap + (copied or {}).get(place, token)
            plain = plain if text else plain.lstrip(" ")
            start = len(text) + len(plain) - len(plain.lstrip(" "))
            text += plain
            spans.append((start, len(text)))
        text = text.rstrip(" ")
        spans = [(min(start, len(text)), min(end, len(text))) for start, end in [*spans, (len(text), len(text))]]
        return Text(text, tokens, tuple(spans), merge(text, spans))

    def trace(self, text: str, encoded: Encoded) -> Text:
        """Return a given string with its tokens, spans and words."""
        tokens = tuple(self.token(i) for i in encoded.ids)
        return Text(text, tokens, encoded.spans, merge(text, encoded.spans))


def pad(rows: Sequence[Sequence[int]]) -> npt.NDArray[np.int64]:
    """Return the ids of several sentences as one array (B, longest), padded on the right.

    >>> pad([(5, 3), (6, 7, 3)]).tolist()
    [[5, 3, 0], [6, 7, 3]]
    """
    padded = np.full((len(rows), max(map(len, rows))), PAD, np.int64)
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids)] = ids
    return padded


def replace_surrogates(text: str) -> str:
    """Return a text with each lone surrogate, which JSON can hold and tokenizers reject, replaced by U+FFFD."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def _spans(text: str, offsets: Sequence[tuple[int, int]], tokens: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the characters of each token: up to the next token, without the white space at either end.

    A letter and its accent that were composed into one are reported with the letter's span alone, hence up to the next;
    but not over white space, because a normaliser may have removed characters after it.
    """
    starts = [*(start for start, _ in offsets[1:]), len(text)]
    first = last = 0  # a normaliser that removes characters may report spans out of order
    for (start, end), following, token in zip(offsets, starts, tokens, strict=False):
        while end < following and not is_space(text[end]):
            end += 1
        while start < end and is_space(text[start]):
            start += 1
        while start < end and is_space(text[end - 1]):
            end -= 1
        end = start if token == SPACE else end
        if start < first or end < last:
            start = end = last
        first, last = start, end
        yield (start, end)
