"""Alignments: links between the words of two texts, with their weights."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.errors import DataError
from heedful.trace.json_checks import field_of, listed, number, numbers, whole_number
from heedful.trace.readout import Readout
from heedful.trace.trace import Word


class Link(NamedTuple):
    """A link between a source word and a target word, counted from 0, and its weight."""

    source: int
    target: int
    weight: float


@dataclass(frozen=True)
class Alignment:
    """The links between the words of two texts.

    `source` and `target` are the words with their character positions, without `</s>`; `links` are sorted by source
    and target word; `weights` (target words, source words) are those that the links were read from.
    """

    source: tuple[Word, ...]
    target: tuple[Word, ...]
    links: tuple[Link, ...]
    weights: NDArray[np.float32] = field(compare=False)
    readout: Readout = field(default_factory=Readout)

    def __str__(self) -> str:
        """The links in the Pharaoh format, `0-0 1-2`: source word and target word, counted from 0."""
        return " ".join(f"{link.source}-{link.target}" for link in self.links)

    @property
    def pairs(self) -> frozenset[tuple[int, int]]:
        """The links without their weights, as `heedful.alignment` scores them."""
        return frozenset((link.source, link.target) for link in self.links)

    def attention_to(self, source: Sequence[int]) -> NDArray[np.float32]:
        """Return the attention of each target word to some source words.  (target words,)."""
        total: NDArray[np.float32] = self.weights[:, source].sum(1)
        return total

    def soft(self, least: float = 0.05) -> tuple[Link, ...]:
        """Return all pairs of words with a weight of at least `least`, as links."""
        cells = zip(*np.nonzero(least <= self.weights.T), strict=True)
        return tuple(Link(int(s), int(t), float(self.weights[t, s])) for s, t in cells)

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it, weights to four digits; `build` reads it."""
        return {
            "source_words": [list(word[:3]) for word in self.source],
            "target_words": [list(word[:3]) for word in self.target],
            "links": [[link.source, link.target, round(link.weight, 4)] for link in self.links],
            "soft": np.round(self.weights.astype(float), 4).tolist(),
            "readout": self.readout.plain(),
        }

    @classmethod
    def build(cls, plain: Mapping[str, Any]) -> Alignment:
        """Return the alignment that `plain` was made from; raise DataError if it is not one."""
        try:
            source, target = (_words(plain, f"{side}_words") for side in ("source", "target"))
            rows = [listed(link, "links", 3) for link in listed(field_of(plain, "links"), "links")]
            links = tuple(
                sorted(Link(whole_number(s, "links"), whole_number(t, "links"), number(w, "links")) for s, t, w in rows)
            )
            weights = numbers(field_of(plain, "soft"), "soft")
            if weights.size != len(target) * len(source):
                raise DataError(f"soft: expected {len(target)} rows of {len(source)} weights")
            readout = Readout.build(field_of(plain, "readout"))
        except DataError as error:
            raise DataError(f"this is not an alignment: {error}") from None
        for link in links:
            if not (0 <= link.source < len(source) and 0 <= link.target < len(target)):
                raise DataError(
                    f"link {link.source}-{link.target}: there are {len(source)} source and {len(target)} target words"
                )
        return cls(source, target, links, weights.reshape(len(target), len(source)), readout)


@dataclass(frozen=True)
class JoinedAlignment:
    """The alignment of a long text, from the alignments of its sentences.

    Weights between all words, which would grow with the square of the text, are never made. `starts` are the first
    characters of each sentence, in source and target.
    """

    parts: tuple[Alignment, ...]
    starts: tuple[tuple[int, int], ...]
    source: tuple[Word, ...] = field(init=False)
    target: tuple[Word, ...] = field(init=False)
    links: tuple[Link, ...] = field(init=False)
    firsts: tuple[tuple[int, int], ...] = field(init=False)

    def __post_init__(self) -> None:
        """Number words and characters over all sentences."""
        source: list[Word] = []
        target: list[Word] = []
        links: list[Link] = []
        firsts = []
        for part, (x, y) in zip(self.parts, self.starts, strict=True):
            firsts.append((len(source), len(target)))
            links += [Link(len(source) + s, len(target) + t, weight) for s, t, weight in part.links]
            source += [word._replace(start=x + word.start, end=x + word.end) for word in part.source]
            target += [word._replace(start=y + word.start, end=y + word.end) for word in part.target]
        for name, value in (("source", source), ("target", target), ("links", links), ("firsts", firsts)):
            object.__setattr__(self, name, tuple(value))

    def __str__(self) -> str:
        """The links in the Pharaoh format."""
        return " ".join(f"{link.source}-{link.target}" for link in self.links)

    def attention_to(self, source: Sequence[int]) -> NDArray[np.float32]:
        """Return the attention of each target word to some source words.  (target words,)."""
        total = np.zeros(len(self.target), dtype=np.float32)
        words: dict[int, list[int]] = {}  # by their part
        for s in source:
            words.setdefault(bisect_right(self.firsts, s, key=lambda first: first[0]) - 1, []).append(s)
        for i, own in words.items():
            part, (x, y) = self.parts[i], self.firsts[i]
            total[y : y + len(part.target)] = part.attention_to([s - x for s in own])
        return total


def _words(plain: Mapping[str, Any], name: str) -> tuple[Word, ...]:
    rows = [listed(word, name, 3) for word in listed(field_of(plain, name), name)]
    places = [(str(text), whole_number(start, name), whole_number(end, name)) for text, start, end in rows]
    return tuple(Word(*place, i, i + 1) for i, place in enumerate(places))
