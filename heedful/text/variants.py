"""Words cut in other ways than the plain one, by chance: what merging and pruning share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from heedful.text.chance import Keys, key, mixed, spread

__all__ = ["Cutter", "variants"]

Numbers = npt.NDArray[np.int32]
BLOCK = 1 << 18  # symbols looked at together


class Cutter(Protocol):
    """What cuts words of one length by chance."""

    def cut(self, words: Sequence[str], counts: npt.NDArray[np.int64], rate: float, keys: Keys) -> Numbers:
        """Cut each word so many times: (sum of counts, length) ids, filled up with -1; `keys` are the rows' own."""
        ...


def variants(
    cutter: Cutter, words: Sequence[str], plain: Sequence[Sequence[int]], counts: Sequence[int], rate: float, seed: int
) -> tuple[Numbers, npt.NDArray[np.int64]]:
    """Cut each word so many times, with its plain way in front: flat ids, and how many each cut has."""
    starts = np.concatenate([[0], np.cumsum(np.asarray(counts, np.int64) + 1)])
    lengths = np.zeros(starts[-1], np.int64)
    lengths[starts[:-1]] = [len(row) for row in plain]
    first = np.fromiter((i for row in plain for i in row), np.int32)
    found = [(starts[:-1], first)]
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for number, word in enumerate(words):
        groups[len(word)].append(number)
    for width, numbers in sorted(groups.items()):
        size = max(1, BLOCK // (width * (max(counts) or 1)))
        for begin in range(0, len(numbers), size):
            block = numbers[begin : begin + size]
            part = [words[n] for n in block]
            times = np.array([counts[n] for n in block], np.int64)
            rows = spread(starts[block] + 1, times)
            cuts = cutter.cut(part, times, rate, _keys(part, times, seed))
            lengths[rows] = (cuts >= 0).sum(axis=1)
            found.append((rows, cuts[cuts >= 0]))
    begins = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.empty(begins[-1], np.int32)
    for rows, flat in found:
        ids[spread(begins[rows], lengths[rows])] = flat
    return ids, lengths


def _keys(words: Sequence[str], counts: npt.NDArray[np.int64], seed: int) -> Keys:
    """Return a key for each way to cut each word, that does not depend on the other words."""
    own = np.array([key("word", seed, word) for word in words], np.uint64)
    return mixed(np.repeat(own, counts), spread(np.zeros(len(words)), counts))
