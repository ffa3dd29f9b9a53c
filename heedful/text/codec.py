"""What all tokenizers have in common: text to token ids with their spans, ids to text, tokens to words."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from heedful.config import TextConfig
from heedful.errors import ConfigError
from heedful.trace import Text
from heedful.trace.trace import OTHER_SPACES, SPACE


def count(text: str) -> int:
    """Return how many words a string has, in the sense of its white space.

    >>> count("मैं खाना खा रहा हूँ")
    5
    """
    return len(text.split())


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

            return SentencePieces.learn(texts, config.size, config.normalization)
        if config.normalization != "nfkc":
            raise ConfigError(
                f"text.normalization={config.normalization} is for text.kind=sentencepiece; text.kind={config.kind} "
                "applies NFC, which changes no text that is clean"
            )
        if config.kind == "letters":
            from heedful.text.letters import Letters

            return Letters.learn(texts, config.size)
        from heedful.text.tokenizer import Tokens

        return Tokens.learn(texts, config)

    @staticmethod
    def parse(text: str) -> Codec:
        """Read what `dump` wrote."""
        from heedful.text import letters
        from heedful.text.sentencepiece import MARK, SentencePieces
        from heedful.text.tokenizer import Tokens

        if text.startswith(letters.MARK):
            return letters.Letters.read_dump(text)
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
            Encoded((*e.ids, END), (*token_spans(text, e.offsets, e.tokens), (len(text), len(text))))
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

    def parts(self, text: str) -> list[tuple[int, int]] | None:
        """Return the spans of a text that are translated one by one, all else being copied; None: its sentences."""
        return None

    def unread(self, text: str) -> Text:
        """Return a text of which nothing is read, so that it has no tokens but special ones."""
        return Text.join(text, [len(text)], [self.trace("", self.encode(""))])

    def decode(self, ids: Sequence[int]) -> str:
        """Return the string that ids stand for."""
        ids = _without_end(ids)
        pieces = (self.gap + SPECIALS[UNKNOWN] if i == UNKNOWN else self._piece(i)[1] for i in ids)
        return "".join(pieces).strip(" ")

    def read(self, ids: Sequence[int], copied: Mapping[int, str] | None = None) -> Text:
        """Return the string that ids stand for, with the span of each; the ids end with `</s>` or get one.

        `copied` says what to write for some that are unknown, by their place.
        """
        pieces, tokens, spans, size = [], [], [], 0
        for place, index in enumerate(_without_end(ids)):
            token, plain, spaces = self._piece(index)
            if index == UNKNOWN:
                plain = self.gap + (copied or {}).get(place, token)
                spaces = len(plain) - len(plain.lstrip(" "))
            if not size:
                plain, spaces = plain[spaces:], 0
            spans.append((size + spaces, size + len(plain)))
            size += len(plain)
            pieces.append(plain)
            tokens.append(token)
        text = "".join(pieces).rstrip(" ")
        n = len(text)
        if n < size:
            spans = [(min(start, n), min(end, n)) for start, end in spans]
        return _text(text, (*tokens, SPECIALS[END]), (*spans, (n, n)))

    def trace(self, text: str, encoded: Encoded) -> Text:
        """Return a given string with its tokens and spans, and so its words."""
        return _text(text, tuple([self._piece(i)[0] for i in encoded.ids]), encoded.spans)

    def _piece(self, index: int) -> tuple[str, str, int]:
        """Return a token, what it adds to a text, and how many spaces that begins with; kept for the next time."""
        piece = self._pieces.get(index)
        if piece is None:
            token = self.token(index)
            plain = token.replace(SPACE, " ")
            piece = self._pieces[index] = token, plain, len(plain) - len(plain.lstrip(" "))
        return piece

    @cached_property
    def _pieces(self) -> dict[int, tuple[str, str, int]]:
        return {}


def _text(text: str, tokens: tuple[str, ...], spans: tuple[tuple[int, int], ...]) -> Text:
    """Return a text without its words, which most texts are never asked for: see `Text.__getattr__`."""
    made = object.__new__(Text)
    made.__dict__.update(text=text, tokens=tokens, spans=spans)
    return made


def _without_end(ids: Sequence[int]) -> Sequence[int]:
    return ids[:-1] if len(ids) and ids[-1] == END else ids


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


def token_spans(text: str, offsets: Sequence[tuple[int, int]], tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Return the characters of each token: up to the next token, without the white space at either end.

    A letter and its accent that were composed into one are reported with the letter's span alone, hence up to the next;
    but not over white space, because a normaliser may have removed characters after it.
    """
    plain = OTHER_SPACES.sub(" ", text)
    spans = []
    first = last = 0  # a normaliser that removes characters may report spans out of order
    final = len(offsets) - 1
    for i, ((start, end), token) in enumerate(zip(offsets, tokens, strict=False)):
        following = offsets[i + 1][0] if i < final else len(text)
        if end < following:
            space = plain.find(" ", end, following)
            end = following if space < 0 else space
        if start < end and (plain[start] == " " or plain[end - 1] == " "):
            start = end - len(plain[start:end].lstrip(" "))
            end = start + len(plain[start:end].rstrip(" "))
        if token == SPACE:
            end = start
        if start < first or end < last:
            start = end = last
        first, last = start, end
        spans.append((start, end))
    return spans
