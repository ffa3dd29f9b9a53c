"""Strings to token ids and back, keeping for every token its span of characters in the original string.

All three kinds work alike and lose nothing but the kind of white space: a space becomes the mark ▁ in front of the word
that follows it, so joining the tokens gives the sentence back. They differ only in where a word may be cut: nowhere
(`word`), between learned pieces (`bpe`), between any two characters (`char`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from heedful.config import TextConfig
from heedful.errors import ModelError
from heedful.text.words import SPACE, is_space, merge
from heedful.trace import Text

__all__ = ["END", "PAD", "SPECIALS", "START", "UNKNOWN", "Codec", "Encoded"]

SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
PAD, UNKNOWN, START, END = range(4)

# Letters keep their marks and joiners: Devanagari vowel signs are marks, and Python's \w would cut at them.
_LETTERS = r"[\p{L}\p{M}\p{N}\x{200C}\x{200D}]"
_WORDS = rf"{SPACE}?{_LETTERS}+(?:['’]{_LETTERS}+)*|{SPACE}?[^{_LETTERS[1:-1]}{SPACE}]|{SPACE}"
_CHARACTERS = r"(?m:.)"


@dataclass(frozen=True)
class Encoded:
    """Token ids, ending with `</s>`, and the character span of each in the original string."""

    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]


class Codec:
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

    def __init__(self, tokenizer: Tokenizer) -> None:
        # Otherwise a "</s>" that somebody typed would end the sentence.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        if [tokenizer.id_to_token(i) for i in range(4)] != list(SPECIALS):
            raise ModelError(f"the tokenizer does not begin with the tokens {', '.join(SPECIALS)}")
        if sorted(tokenizer.get_vocab().values()) != list(range(len(self))):
            raise ModelError(f"the tokenizer's ids are not the numbers from 0 to {len(self) - 1}")

    @classmethod
    def train(cls, texts: Iterable[str], config: TextConfig) -> Codec:
        """Learn a vocabulary of at most `config.size` tokens from texts."""
        common: dict[str, Any] = {"vocab_size": config.size, "special_tokens": list(SPECIALS), "show_progress": False}
        tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
        trainer: trainers.Trainer = trainers.WordLevelTrainer(**common)
        if config.kind == "bpe":
            # Characters count too: without a limit they alone could be more than the vocabulary's size.
            tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
            trainer = trainers.BpeTrainer(limit_alphabet=config.size - len(SPECIALS), **common)
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.NFC(), normalizers.Replace(Regex(rf"[\s\x1c-\x1f{SPACE}]+"), " "), normalizers.Strip()]
        )
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Metaspace(SPACE, "always", split=False),
                pre_tokenizers.Split(Regex(_CHARACTERS if config.kind == "char" else _WORDS), "isolated"),
            ]
        )
        tokenizer.train_from_iterator(texts, trainer)
        return cls(tokenizer)

    @classmethod
    def parse(cls, text: str) -> Codec:
        """Read what `dump` wrote."""
        try:
            tokenizer = Tokenizer.from_str(text)
        except BaseException as error:  # the Rust parser raises plain Exception, and on some inputs panics
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise ModelError(f"the tokenizer cannot be read: {error}") from None
        return cls(tokenizer)

    def dump(self) -> str:
        """Return the tokenizer as JSON."""
        return str(self._tokenizer.to_str())

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def token(self, index: int) -> str:
        """Return the token with an id."""
        return str(self._tokenizer.id_to_token(index))

    def encode(self, text: str) -> Encoded:
        """Return the ids of a sentence and their spans, closed by `</s>`."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[Encoded]:
        """Encode many sentences, using all cores."""
        return [
            Encoded((*e.ids, END), (*_spans(text, e.offsets, e.tokens), (len(text), len(text))))
            for text, e in zip(texts, self._encode(texts), strict=True)
        ]

    def ids(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the ids of many sentences, each closed by `</s>`, without the spans, in half the time."""
        return [(*e.ids, END) for e in self._encode(texts)]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the string that ids stand for."""
        return self.read(ids).text

    def read(self, ids: Sequence[int]) -> Text:
        """Return the string that ids stand for, with the span of each; the ids end with `</s>` or get one."""
        ids = tuple(ids)
        if not ids or ids[-1] != END:
            ids += (END,)
        tokens = tuple(self.token(i) for i in ids)
        # A vocabulary of whole words has no ▁ of its own: there <unk> stands for a word with its space.
        gap = " " if self._tokenizer.token_to_id(SPACE) is None else ""
        text, spans = "", []
        for index, token in zip(ids[:-1], tokens, strict=False):
            plain = gap + token if index == UNKNOWN else token.replace(SPACE, " ")
            plain = plain if text else plain.lstrip(" ")
            start = len(text) + len(plain) - len(plain.lstrip(" "))
            text += plain
            spans.append((start, len(text)))
        text = text.rstrip(" ")
        spans = [(min(start, len(text)), min(end, len(text))) for start, end in [*spans, (len(text), len(text))]]
        return Text(text, tokens, tuple(spans), merge(text, spans))

    def _encode(self, texts: Sequence[str]) -> list[Any]:
        # Half of a character, as JSON can hold it, is no text for the tokenizer; its stand-in is as long.
        whole = [re.sub("[\ud800-\udfff]", "\ufffd", text) for text in texts]
        try:
            return list(self._tokenizer.encode_batch(whole, add_special_tokens=False))
        except Exception as error:  # the Rust library raises nothing narrower
            raise ModelError(f"the tokenizer cannot read this text: {error}") from None

    def trace(self, text: str, encoded: Encoded) -> Text:
        """Return a given string with its tokens, spans and words."""
        tokens = tuple(self.token(i) for i in encoded.ids)
        return Text(text, tokens, encoded.spans, merge(text, encoded.spans))


def _spans(text: str, offsets: Sequence[tuple[int, int]], tokens: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the characters of each token: up to the next token, without the white space at either end.

    A letter and its accent that were composed into one are reported with the letter's span alone, hence up to the next.
    """
    starts = [*(start for start, _ in offsets[1:]), len(text)]
    for (start, end), following, token in zip(offsets, starts, tokens, strict=False):
        end = max(end, following)
        while start < end and is_space(text[start]):
            start += 1
        while start < end and is_space(text[end - 1]):
            end -= 1
        yield (start, start if token == SPACE else end)
