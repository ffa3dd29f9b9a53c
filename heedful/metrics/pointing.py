"""Pointing accuracy: whether the largest attention weight of a word is inside its gold region in the image.

A word of a caption points at the region with its largest weight; `</s>`, which is no region, is left out. It is right
if that region is one that the word's gold boxes cover (`covered_regions`: its centre is inside a box, or the box is
narrower or lower than a region and overlaps it most). Two baselines stand beside it: a region drawn at random, and the
centre of the picture for every word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.errors import ShapeError
from heedful.trace.trace import Box, ImageRegions


class GoldWord(NamedTuple):
    """A word of a caption, by its number from 0, and the regions that are right for it.

    `share` is that of all regions that are right, `centre` whether the picture's centre is inside a gold box, and
    `kind` a kind of word, such as noun or colour, if it is known.
    """

    word: int
    regions: frozenset[int]
    share: float
    centre: bool
    kind: str = ""


def gold_words(image: ImageRegions, boxes: Iterable[tuple[int, Box, str]]) -> list[GoldWord]:
    """Return the words of a caption that have gold boxes, in order; each box is (word, box in pixels, kind).

    A word with several boxes may point at any of them. A box that is outside of the picture is left out.

    >>> image = ImageRegions("a.png", 40, 40, 4, 4)
    >>> gold_words(image, [(2, (0, 0, 20, 10), "noun"), (2, (30, 30, 10, 10), "noun")])
    [GoldWord(word=2, regions=frozenset({0, 1, 15}), share=0.1875, centre=False, kind='noun')]
    """
    found: dict[int, tuple[set[int], list[Box], str]] = {}
    for word, box, kind in boxes:
        if covered := image.covered(box):
            regions, whole, _ = found.setdefault(word, (set(), [], kind))
            regions.update(covered)
            whole.append(box)
    middle_x, middle_y = image.width / 2, image.height / 2
    return [
        GoldWord(
            word,
            frozenset(regions),
            len(regions) / image.count,
            any(x <= middle_x <= x + w and y <= middle_y <= y + h for x, y, w, h in whole),
            kind,
        )
        for word, (regions, whole, kind) in sorted(found.items())
    ]


def points_right(weights: NDArray[np.floating[Any]], gold: Sequence[GoldWord]) -> list[bool]:
    """Return for each gold word whether it points at a right region.  weights (words, regions).

    A word without any weight points nowhere, which is not right.
    """
    if gold and not max(one.word for one in gold) < len(weights):
        raise ShapeError(f"weights has {len(weights)} rows, expected one for each word; gold word {gold[-1].word}")
    return [
        bool(weights[one.word].max(initial=0) > 0) and int(weights[one.word].argmax()) in one.regions for one in gold
    ]


class PointingRow(NamedTuple):
    """How many words of a kind point right, in per cent, beside chance and the picture's centre."""

    kind: str
    words: int
    accuracy: float
    chance: float
    centre: float

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it."""
        return self._asdict()


@dataclass(frozen=True)
class PointingTable:
    """Pointing accuracy by kind of word, the most frequent first, and of all words.

    `rows` is empty if the kinds are not known.
    """

    rows: tuple[PointingRow, ...]
    total: PointingRow

    @classmethod
    def of(cls, gold: Sequence[GoldWord], right: Sequence[bool]) -> PointingTable:
        """Return the table of gold words, at least one, and whether each points right."""
        counts = Counter(one.kind for one in gold)
        flags = np.array(right, dtype=bool)
        kinds = [kind for kind, _ in counts.most_common()] if set(counts) - {""} else []
        rows = [_row(kind, gold, flags, [i for i, one in enumerate(gold) if one.kind == kind]) for kind in kinds]
        return cls(tuple(rows), _row("all", gold, flags, list(range(len(gold)))))

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it."""
        total = {name: value for name, value in self.total.plain().items() if name != "kind"}
        return {**total, "by_kind": [row.plain() for row in self.rows]}

    def text(self) -> str:
        """Return the table as text."""
        lines = [f"{'pointing':<12} {'words':>7} {'accuracy':>9} {'chance':>7} {'centre':>7}"]
        for row in (*self.rows, self.total):
            numbers = f"{row.accuracy:>9.1f} {row.chance:>7.1f} {row.centre:>7.1f}"
            lines.append(f"{row.kind or 'other':<12} {row.words:>7,} {numbers}")
        return "\n".join(lines)


def _row(kind: str, gold: Sequence[GoldWord], right: NDArray[np.bool_], chosen: Sequence[int]) -> PointingRow:
    values = [(float(right[i]), gold[i].share, float(gold[i].centre)) for i in chosen]
    return PointingRow(kind, len(chosen), *(100 * float(value) for value in np.mean(values, axis=0)))
