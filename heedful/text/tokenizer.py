"""Vocabularies of words, characters and subwords (BPE, unigram), by the `tokenizers` library.

All kinds lose nothing but the kind of white space: a space becomes the mark ▁ in front of the next word, so that joined
tokens are the sentence again. They differ in where a word may be cut: nowhere (`word`), between learned pieces (`bpe`,
`unigram`), between any two characters (`char`).

Only tokenizers that heedful writes are read. Others can do harm: pad every text to two billion tokens, replace each
letter by sixteen, over and over, or match a pattern for ever.

Text between white space is tokenized independently of its context, and mostly repeats: `flat` and `numbered` cache the
result, which is some ten times as fast.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from heedful.config import TextConfig
from heedful.errors import ModelError, foreign
from heedful.files import parse_json
from heedful.text.codec import END, SPECIALS, UNKNOWN, Codec, Encoded, Numbers, Pieces, replace_surrogates
from heedful.text.subwords import Lattices, Merges, SubwordSampler, learn_unigram, variants
from heedful.trace.trace import SPACE, unspaced

# Letters keep their marks and joiners: Devanagari vowel signs are marks, and Python's \w would cut at them.
_LETTERS = r"[\p{L}\p{M}\p{N}\x{200C}\x{200D}]"
_WORDS = rf"{SPACE}?{_LETTERS}+(?:['’]{_LETTERS}+)*|{SPACE}?[^{_LETTERS[1:-1]}{SPACE}]|{SPACE}"
_CHARACTERS = r"(?m:.)"

LONG = 32  # characters: longer parts hardly repeat
UNREADABLE = "the tokenizer cannot read this text"
CACHED = 100_000  # parts between white space, in a process

T = TypeVar("T")


# The pattern of white space before U+001C to U+001F were included.
_SPACES, _OLD_SPACES = rf"[\s\x1c-\x1f{SPACE}]+", rf"[\s{SPACE}]+"
LONGEST = 10_000  # characters of a token, when one is learned and when one is read
LONGEST_UNIGRAM = 64  # here the time grows with its square; 16 are learned
UNUSED = ("truncation", "padding", "post_processor", "decoder")
MODELS = ("BPE", "Unigram", "WordLevel")
OPTIONS = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges")


def _normalizer() -> normalizers.Normalizer:
    return normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(_SPACES), " "), normalizers.Strip()])


def _pre_tokenizer(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(SPACE, "always", split=False), pre_tokenizers.Split(Regex(pattern), "isolated")]
    )


def _check(parsed: Any) -> None:  # noqa: ANN401  (what JSON holds)
    """Raise ModelError, naming the part, for a tokenizer that heedful does not write."""
    if not isinstance(parsed, dict) or not isinstance(model := parsed.get("model"), dict):
        raise ModelError("the tokenizer cannot be read: it has no model")
    for part in UNUSED:
        if parsed.get(part) is not None:
            raise _foreign_part(part, parsed[part], "none")
    spaces = [{"Regex": pattern} for pattern in (_SPACES, _OLD_SPACES)]
    normalizers_ = [
        _sequence(
            "normalizers",
            {"type": "NFC"},
            {"type": "Replace", "pattern": pattern, "content": " "},
            {"type": "Strip", "strip_left": True, "strip_right": True},
        )
        for pattern in spaces
    ]
    if parsed.get("normalizer") not in normalizers_:
        raise _foreign_part("normalizer", parsed.get("normalizer"), "NFC, Replace of white space, Strip")
    splits = [
        _sequence(
            "pretokenizers",
            {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": False},
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        )
        for pattern in (_WORDS, _CHARACTERS)
    ]
    if parsed.get("pre_tokenizer") not in splits:
        raise _foreign_part("pre_tokenizer", parsed.get("pre_tokenizer"), "Metaspace, Split into words or characters")
    added = parsed.get("added_tokens")
    one_by_one = added if isinstance(added, list) else []
    names = [one.get("content") if isinstance(one, dict) else one for one in one_by_one] or added
    plain = (isinstance(one, dict) and one.get("special") and not one.get("normalized") for one in one_by_one)
    if names != list(SPECIALS) or not all(plain):
        raise ModelError(f"the tokenizer adds the tokens {names!s:.80}, expected {', '.join(SPECIALS)}")
    if model.get("type") not in MODELS:
        raise ModelError(f"the tokenizer's model is {model.get('type')!r:.40}, expected one of {', '.join(MODELS)}")
    for option in OPTIONS:
        if model.get(option) not in (None, False):
            raise ModelError(f"the tokenizer's model has {option} {model[option]!r:.40}, which heedful never writes")
    vocabulary = model.get("vocab")
    pieces = vocabulary if isinstance(vocabulary, dict | list) else ()
    longest = max((len(str(one[0] if isinstance(one, list) and one else one)) for one in pieces), default=0)
    most = LONGEST_UNIGRAM if model["type"] == "Unigram" else LONGEST
    if longest > most:
        raise ModelError(f"the tokenizer has a token of {longest:,} characters; at most {most:,} are read")


def _sequence(name: str, *parts: object) -> dict[str, object]:
    return {"type": "Sequence", name: list(parts)}


def _foreign_part(part: str, value: object, expected: str) -> ModelError:
    """Return the error for a part that heedful does not write, with the kinds of all that it consists of."""
    kinds: list[str] = []
    left = [value]
    while left and len(kinds) < 8:
        one = left.pop(0)
        if isinstance(one, dict):
            kinds += [f"{one['type']!s:.40}"] if "type" in one else []
            left += [value for value in one.values() if isinstance(value, dict | list)]
        elif isinstance(one, list):
            left += one[:8]
    return ModelError(
        f"the tokenizer's {part} is {', '.join(kinds) or f'{value!s:.60}'}, expected {expected}; only tokenizers that "
        "heedful writes are read, as others can take any memory and time"
    )


class Tokens(Codec):
    """A vocabulary of one of the four kinds."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        # Otherwise a "</s>" in a text would end the sentence.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self.gap = " " if tokenizer.token_to_id(SPACE) is None else ""
        if [tokenizer.id_to_token(i) for i in range(4)] != list(SPECIALS):
            raise ModelError(f"the tokenizer does not begin with the tokens {', '.join(SPECIALS)}")
        if sorted(tokenizer.get_vocab().values()) != list(range(len(self))):
            raise ModelError(f"the tokenizer's ids are not the numbers from 0 to {len(self) - 1}")
        self._encoded: dict[str, Encoded] = {}
        self._ids: dict[str, list[int]] = {}
        self._words: dict[str, list[str]] = {}

    @classmethod
    def learn(cls, texts: Iterable[str], config: TextConfig) -> Tokens:
        """Learn a vocabulary of at most `config.size` tokens from texts."""
        common: dict[str, Any] = {"vocab_size": config.size, "special_tokens": list(SPECIALS), "show_progress": False}
        tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
        trainer: trainers.Trainer = trainers.WordLevelTrainer(**common)
        if config.kind == "bpe":
            # Characters count too: without a limit they alone could be more than the vocabulary's size.
            tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
            trainer = trainers.BpeTrainer(
                limit_alphabet=config.size - len(SPECIALS), max_token_length=LONGEST, **common
            )
        tokenizer.normalizer = _normalizer()
        tokenizer.pre_tokenizer = _pre_tokenizer(_CHARACTERS if config.kind == "char" else _WORDS)
        if config.kind == "unigram":
            words = _counted(texts, tokenizer)
            known = learn_unigram(words, config.size - len(SPECIALS))
            tokenizer.model = models.Unigram([*((token, 0.0) for token in SPECIALS), *known], UNKNOWN, False)
            tokenizer.add_special_tokens(list(SPECIALS))
        else:
            tokenizer.train_from_iterator(texts, trainer)
            if any(len(token) > LONGEST for token in tokenizer.get_vocab()):
                ranked = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
                kept = [token for token, _ in ranked if len(token) <= LONGEST]
                tokenizer.model = models.WordLevel({token: i for i, token in enumerate(kept)}, unk_token="<unk>")
        return cls(tokenizer)

    @classmethod
    def read_dump(cls, text: str) -> Tokens:
        """Read what `dump` wrote."""
        parsed = parse_json(text, "the tokenizer cannot be read")
        _check(parsed)
        with foreign("the tokenizer cannot be read"):
            # From what was checked: a key may be in the text twice.
            return cls(Tokenizer.from_str(json.dumps(parsed)))

    def dump(self) -> str:
        """Return the tokenizer as JSON."""
        return str(self._tokenizer.to_str())

    def __len__(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def token(self, index: int) -> str:
        """Return the token with an id."""
        return str(self._tokenizer.id_to_token(index))

    def _cut(self, texts: Sequence[str]) -> Sequence[Pieces]:
        with foreign(UNREADABLE):
            return list(
                self._tokenizer.encode_batch([replace_surrogates(text) for text in texts], add_special_tokens=False)
            )

    def encode_all(self, texts: Sequence[str]) -> list[Encoded]:
        """Encode many sentences; parts between white space that occurred before are not encoded again."""
        if not self._apart:
            return super().encode_all(texts)
        rows = [text.split() for text in texts]
        # Threads of a service encode at the same time: what is in the cache now may be gone later.
        known = {part: self._encoded.get(part) for part in dict.fromkeys(chain.from_iterable(rows))}
        new = [part for part, encoded in known.items() if encoded is None]
        encoded_of = dict(zip(new, super().encode_all(new), strict=True))
        if len(self._encoded) <= CACHED:  # most frequent parts come early
            self._encoded.update((part, one) for part, one in encoded_of.items() if len(part) <= LONG)
        encoded_of |= {part: one for part, one in known.items() if one is not None}
        return [_joined(text, row, encoded_of) for text, row in zip(texts, rows, strict=True)]

    def ids_and_lengths(self, texts: Sequence[str]) -> tuple[Numbers, Numbers]:
        """Return the ids of many sentences, one after the other, each closed by `</s>`, and how many each has."""
        if not self._apart:
            return super().ids_and_lengths(texts)
        ids_of = _cached(texts, self._ids, lambda parts: [list(e.ids) for e in self._cut(parts)])
        ids = np.fromiter(chain.from_iterable(part for row in ids_of for part in (*row, (END,))), np.int32)
        return ids, np.diff(np.flatnonzero(ids == END), prepend=-1).astype(np.int32)

    def numbered(self, texts: Sequence[str]) -> tuple[list[str], npt.NDArray[np.uint32], Numbers]:
        """Return the distinct words of texts, the running words as indices into them, and how many each text has."""
        if not self._apart or self._sampler is None:
            return super().numbered(texts)
        with foreign(UNREADABLE):
            words_of = _cached(texts, self._words, lambda parts: [self._parted(part) for part in parts])
        numbers: dict[str, int] = {}
        rows = [list(chain.from_iterable(row)) for row in words_of]
        running = (numbers.setdefault(word, len(numbers)) for row in rows for word in row)
        indices = np.fromiter(running, np.uint32)
        return list(numbers), indices, np.fromiter(map(len, rows), np.int32, len(rows))

    def variants(
        self, words: Sequence[str], counts: Sequence[int], rate: float, seed: int
    ) -> tuple[Numbers, npt.NDArray[np.int64]]:
        """Tokenize each word, then so many times at random: ids without `</s>`, and the length of each."""
        if self._sampler is None:
            return super().variants(words, counts, rate, seed)
        with foreign(UNREADABLE):
            plain = [[piece.id for piece in self._tokenizer.model.tokenize(word)] for word in words]
        return variants(self._sampler, words, plain, counts, rate, seed)

    def _parted(self, text: str) -> list[str]:
        """Return the words of text between white space."""
        normal = self._tokenizer.normalizer.normalize_str(replace_surrogates(text))
        words = []
        for word, _ in self._tokenizer.pre_tokenizer.pre_tokenize_str(normal):
            if len(word) > LONG or unspaced(word[-1]):
                # Few of these repeat. Cutting them where they are tokenized leaves the tokens as they are.
                encoded = word.encode()
                pieces = self._tokenizer.model.tokenize(word)
                words += [encoded[slice(*piece.offsets)].decode() for piece in pieces]
            else:
                words.append(word)
        return words

    @cached_property
    def _apart(self) -> bool:
        """Whether text between white space is tokenized independently: so in all files that heedful writes."""
        parts = self._tokenizer.normalizer, self._tokenizer.pre_tokenizer
        if None in parts or self._tokenizer.post_processor is not None:
            return False
        own = [part.__getstate__() for part in parts]
        ours = ([_normalizer(), _pre_tokenizer(pattern)] for pattern in (_WORDS, _CHARACTERS))
        return any(own == [part.__getstate__() for part in each] for each in ours)

    @cached_property
    def _sampler(self) -> SubwordSampler | None:
        """The sampler of subwords; None if this vocabulary cuts a word in one way only."""
        model = json.loads(self.dump())["model"]
        if model["type"] == "BPE":
            return Merges(model["vocab"], [tuple(pair) for pair in model["merges"]], UNKNOWN)
        if model["type"] == "Unigram":
            return Lattices(model["vocab"], UNKNOWN)
        return None


def _counted(texts: Iterable[str], tokenizer: Tokenizer) -> Counter[str]:
    """Return how often each word occurs in texts."""
    parts: Counter[str] = Counter()
    for text in texts:
        parts.update(text.split())
    words: Counter[str] = Counter()
    for part, count in parts.items():
        normal = tokenizer.normalizer.normalize_str(replace_surrogates(part))
        for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal):
            words[word] += count
    return words


def _joined(text: str, parts: Sequence[str], encoded_of: Mapping[str, Encoded]) -> Encoded:
    """Return the tokens of a text from those of its parts between white space."""
    ids: list[int] = []
    spans: list[tuple[int, int]] = []
    end = 0
    for part in parts:
        start = text.index(part, end)
        end = start + len(part)
        encoded = encoded_of[part]
        ids += encoded.ids[:-1]
        spans += [(start + a, start + b) for a, b in encoded.spans[:-1]]
    return Encoded((*ids, END), (*spans, (len(text), len(text))))


def _cached(texts: Sequence[str], known: dict[str, T], cut: Callable[[list[str]], list[T]]) -> list[list[T]]:
    """Return the result for each part of texts between white space, computing only those that are not cached."""
    rows = [text.split() for text in texts]
    full = len(known) > CACHED  # most frequent parts come early
    new = [part for part in dict.fromkeys(chain.from_iterable(rows)) if part not in known]
    known.update(zip(new, cut(new), strict=True))
    results = [[known[part] for part in row] for row in rows]
    for part in new:
        if full or len(part) > LONG:
            del known[part]
    return results
