"""Words, characters and learned pieces (BPE), cut by the `tokenizers` library.

All three kinds work alike and lose nothing but the kind of white space: a space becomes the mark ▁ in front of the word
that follows it, so joining the tokens gives the sentence back. They differ only in where a word may be cut: nowhere
(`word`), between learned pieces (`bpe`), between any two characters (`char`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from heedful.config import TextConfig
from heedful.errors import ModelError
from heedful.text.codec import SPECIALS, Codec, Pieces, whole
from heedful.text.words import SPACE

__all__ = ["Tokens"]

# Letters keep their marks and joiners: Devanagari vowel signs are marks, and Python's \w would cut at them.
_LETTERS = r"[\p{L}\p{M}\p{N}\x{200C}\x{200D}]"
_WORDS = rf"{SPACE}?{_LETTERS}+(?:['’]{_LETTERS}+)*|{SPACE}?[^{_LETTERS[1:-1]}{SPACE}]|{SPACE}"
_CHARACTERS = r"(?m:.)"


class Tokens(Codec):
    """A vocabulary of one of the three kinds."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        # Otherwise a "</s>" that somebody typed would end the sentence.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self.gap = " " if tokenizer.token_to_id(SPACE) is None else ""
        if [tokenizer.id_to_token(i) for i in range(4)] != list(SPECIALS):
            raise ModelError(f"the tokenizer does not begin with the tokens {', '.join(SPECIALS)}")
        if sorted(tokenizer.get_vocab().values()) != list(range(len(self))):
            raise ModelError(f"the tokenizer's ids are not the numbers from 0 to {len(self) - 1}")

    @classmethod
    def learn(cls, texts: Iterable[str], config: TextConfig) -> Tokens:
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
    def read_dump(cls, text: str) -> Tokens:
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

    def _cut(self, texts: Sequence[str]) -> Sequence[Pieces]:
        try:
            return list(self._tokenizer.encode_batch([whole(text) for text in texts], add_special_tokens=False))
        except Exception as error:  # the Rust library raises nothing narrower
            raise ModelError(f"the tokenizer cannot read this text: {error}") from None
