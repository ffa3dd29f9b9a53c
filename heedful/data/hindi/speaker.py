"""Who chooses what to say: chance, the ideas behind the words, and which words were put together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import count
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from heedful.data.hindi.phrases import NounPhrase

__all__ = ["LinkedWord", "Phrase", "Speaker", "words"]

T = TypeVar("T")


class LinkedWord(NamedTuple):
    """A written word and the ideas it expresses: a Hindi and an English word that share one are linked."""

    text: str
    ideas: tuple[int, ...]


Phrase = tuple[LinkedWord, ...]


def words(text: str, *ideas: int) -> Phrase:
    """Return the words of a text, all of which express these ideas."""
    if " " not in text:
        return (LinkedWord(text, ideas),) if text else ()
    return tuple([LinkedWord(word, ideas) for word in text.split()])


class Speaker:
    """Makes the choices of one sentence and remembers them.

    Only `Random.random` is used: its numbers are the same in every version of Python.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._ideas = count()
        self.relations: list[tuple[str, str]] = []  # keys of words that stand in a relation: verb and object, …
        self.used: list[str] = []  # keys of all words
        self.antecedents: list[tuple[int, int]] = []  # the idea of a pronoun, and of what it means
        self.previous: NounPhrase | None = None  # the subject of the clause before

    def idea(self) -> int:
        """Return a new idea."""
        return next(self._ideas)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._random.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options, each as likely as any other."""
        return options[int(self._random.random() * len(options))]

    def weigh(self, options: Mapping[T, float]) -> T:
        """Return one of the options, as likely as its weight."""
        left = self._random.random() * math.fsum(options.values())
        for option, weight in options.items():
            left -= weight
            if left < 0:
                return option
        return next(reversed(list(options)))

    def whole(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`."""
        return low + int(self._random.random() * (high - low + 1))

    def use(self, *keys: str) -> None:
        """Remember that words are used."""
        self.used.extend(keys)

    def relate(self, one: str, other: str) -> None:
        """Remember that two words stand in a relation."""
        self.relations.append((one, other))
