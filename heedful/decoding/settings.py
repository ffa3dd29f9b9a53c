"""The settings of decoding, checked; length limits, and batches of similar length."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

from heedful.errors import ConfigError, choose

__all__ = ["PENALTIES", "Decoding", "DecodingKeywords", "batch_by_length", "length_limit"]

PENALTIES = ("gnmt", "length", "none")
# Tokens that a person may ask for: a model that never ends writes as many, and the work may grow with their square. The
# longest sentence that is read at once, 2,048 tokens, has 4,116 by default.
LONGEST = 10_000


class DecodingKeywords(TypedDict, total=False):
    """The settings of `Decoding` as keyword arguments, as in `translator.translate(text, beam=5)`."""

    beam: int
    n_best: int
    penalty: str
    alpha: float
    min_length: int
    max_length: int
    no_repeat: int
    sample: bool
    temperature: float
    top_k: int
    top_p: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class Decoding:
    """How to write.

    With a beam of 1 the most probable word is taken at every step; a wider one keeps that many hypotheses and returns
    the best `n_best`. They are compared by their log-probability divided by |Y|^alpha (`penalty="length"`), by
    ((5 + |Y|) / 6)^alpha (`"gnmt"`), or as it is (`"none"`); |Y| counts the tokens with `</s>`. With `sample`, words
    are drawn at random, and `n_best` is how many sentences are drawn for each.

    `min_length` and `max_length` are in tokens without `</s>`, at most 10,000; a `max_length` of 0 is 2n + 20 for n
    source tokens.
    `no_repeat=3` lets no three tokens in a row come twice.
    """

    beam: int = 1
    n_best: int = 1
    penalty: str = "length"
    alpha: float = 1.0
    min_length: int = 0
    max_length: int = 0
    no_repeat: int = 0
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        for name, low, high in (
            ("beam", 1, 1000),
            ("n_best", 1, 1000),
            ("min_length", 0, LONGEST),
            ("max_length", 0, LONGEST),
            ("no_repeat", 0, 1000),
            ("top_k", 0, 10**9),
            ("seed", 0, 2**63 - 1),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ConfigError(f"{name} is {value!r}, expected a whole number from {low} to {high}")
        choose("penalty", str(self.penalty), PENALTIES)
        self._range("alpha", lambda alpha: 0.0 <= alpha <= 10.0, "a number from 0 to 10")
        self._range("temperature", lambda heat: 0.0 < heat < math.inf, "a number above 0; towards 0 it is greedy")
        self._range("top_p", lambda share: 0.0 < share <= 1.0, "a number above 0 and at most 1")
        if not isinstance(self.sample, bool):
            raise ConfigError(f"sample is {self.sample!r}, expected True or False")
        self._together()

    def _range(self, name: str, holds: Callable[[float], bool], expected: str) -> None:
        value = getattr(self, name)
        # NaN holds nowhere.
        if isinstance(value, bool) or not isinstance(value, int | float) or not holds(value):
            raise ConfigError(f"{name} is {value!r}, expected {expected}")

    def _together(self) -> None:
        """Refuse settings that contradict each other."""
        if self.max_length and self.min_length > self.max_length:
            raise ConfigError(f"min_length is {self.min_length}, which is more than max_length, {self.max_length}")
        if self.sample and self.beam > 1:
            raise ConfigError("sample and beam exclude each other: draw words, or search for the best")
        if not self.sample and self.n_best > self.beam:
            raise ConfigError(
                f"n_best is {self.n_best}, but a beam of {self.beam} finds at most {self.beam}; "
                "widen the beam, or sample"
            )
        for name, plain in (("temperature", 1.0), ("top_k", 0), ("top_p", 1.0)):
            if not self.sample and getattr(self, name) != plain:
                raise ConfigError(f"{name} is {getattr(self, name)}, but nothing is drawn at random; add sample")

    def divisor(self, length: float) -> float:
        """Return what the log-probability of `length` tokens is divided by; it never falls with the length."""
        if self.penalty == "none":
            return 1.0
        return float((length if self.penalty == "length" else (5 + length) / 6) ** self.alpha)


def length_limit(length: int, how: Decoding | None = None, prefix: int = 0) -> int:
    """Return the most tokens, `</s>` included, that a translation of `length` source tokens may have."""
    if how and how.max_length:
        return how.max_length + 1
    return max(2 * length + 20 + prefix, how.min_length + 1 if how else 0)


def batch_by_length(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Yield indices of sentences of similar length, batch by batch, with at most so many tokens after padding."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and lengths[i] * (len(batch) + 1) > tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
