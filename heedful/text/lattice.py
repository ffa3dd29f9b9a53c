"""All ways to cut words into pieces with log-probabilities, and one of them drawn by chance (Kudo, 2018).

A way to cut a word has the product of its pieces' probabilities. Forward filtering adds up, for every place in a word,
the ways that lead there; backward sampling then draws the last piece, the one before it, and so on. Words of one length
n are looked at together, as W rows; pieces are found by where they end, 1..n, and by how long they are, 1..M.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from heedful.text.chance import Keys, uniform

__all__ = ["Lattices", "backward", "forward", "pieces"]

Numbers = npt.NDArray[np.int32]
Reals = npt.NDArray[np.float64]
STRENGTH = 0.02
PENALTY = 10.0  # how much less probable than any piece a character is that is unknown; as in SentencePiece


def pieces(words: Sequence[str], ids: Mapping[str, int], longest: int) -> Numbers:
    """Return the ids of the pieces in words of one length: (W, n, M), by end and length; -1 where there is none."""
    width = len(words[0])
    most = max(1, min(longest, width))
    get = ids.get
    found = np.full((len(words), width, most), -1, np.int32)
    for size in range(1, most + 1):
        ends = range(size, width + 1)
        parts = (get(word[end - size : end], -1) for word in words for end in ends)
        found[:, size - 1 :, size - 1] = np.fromiter(parts, np.int32).reshape(len(words), -1)
    return found


def _before(sums: Reals, end: int, most: int) -> Reals:
    """Return the sums at the places where pieces of 1..M characters that end at `end` begin: (W, M)."""
    near = sums[:, max(0, end - most) : end][:, ::-1]
    return np.pad(near, ((0, 0), (0, most - near.shape[1])), constant_values=-np.inf)


def _added(terms: Reals, axis: int) -> Reals:
    """Return log Σ exp, of nothing -∞."""
    top = terms.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(terms - top).sum(axis=axis)) + top.squeeze(axis))


def forward(scores: Reals) -> Reals:
    """Return the log-probability of all ways to cut what stands before each place.  (W, n, M) -> (W, n + 1)."""
    rows, width, most = scores.shape
    sums = np.full((rows, width + 1), -np.inf)
    sums[:, 0] = 0.0
    for end in range(1, width + 1):
        sums[:, end] = _added(_before(sums, end, most) + scores[:, end - 1], 1)
    return sums


def backward(scores: Reals) -> Reals:
    """Return the log-probability of all ways to cut what stands after each place.  (W, n, M) -> (W, n + 1)."""
    rows, width, most = scores.shape
    sums = np.full((rows, width + 1), -np.inf)
    sums[:, width] = 0.0
    for begin in range(width - 1, -1, -1):
        sizes = np.arange(min(most, width - begin))
        sums[:, begin] = _added(sums[:, begin + 1 + sizes] + scores[:, begin + sizes, sizes], 1)
    return sums


class Lattices:
    """The pieces of a unigram vocabulary with their log-probabilities, in the order of their ids."""

    def __init__(self, vocabulary: Sequence[tuple[str, float]], unknown: int) -> None:
        self._unknown = unknown
        self._ids = {piece: index for index, (piece, _) in enumerate(vocabulary)}
        self._longest = max(map(len, self._ids))
        self._scores = np.array([score for _, score in vocabulary])
        self._unknown_score = float(self._scores.min()) - PENALTY

    def cut(self, words: Sequence[str], counts: npt.NDArray[np.int64], rate: float, keys: Keys) -> Numbers:
        """Cut words of one length, each so many times: (sum of counts, length) ids, filled up with -1.

        A way to cut a word is drawn with its probability to the power of 0.02 / rate: at 0.1, that
        of 0.2, words change about as much as with a tenth of the merges left out.
        """
        ids = pieces(words, self._ids, self._longest)
        scores = np.where(ids < 0, -np.inf, self._scores[ids])
        alone = ids[:, :, 0] < 0
        scores[:, :, 0][alone] = self._unknown_score
        ids[:, :, 0][alone] = self._unknown
        scores *= STRENGTH / max(rate, 1e-9)
        return self._draw(ids, scores, np.repeat(np.arange(len(words)), counts), keys)

    def _draw(self, ids: Numbers, scores: Reals, words: npt.NDArray[np.int64], keys: Keys) -> Numbers:
        """Draw a way to cut for each row, a row being of the word with the number `words`, from its end."""
        sums = forward(scores)
        _, width, most = scores.shape
        # How probable each piece is as the last of what ends where it does; added up, to be drawn from.
        last = np.stack([_before(sums, end, most) - sums[:, end, None] for end in range(1, width + 1)], axis=1)
        shares = np.exp(last + scores).cumsum(axis=2)
        found = np.full((len(words), width), -1, np.int32)
        rows, at = np.arange(len(words)), np.full(len(words), width)
        while len(rows):
            share = shares[words[rows], at - 1]
            chance = uniform(keys[rows], at) * share[:, -1]
            size = (share <= chance[:, None]).sum(axis=1)
            piece = ids[words[rows], at - 1, size]
            at = at - size - 1
            # Characters that are unknown and stand side by side are one token.
            fused = (piece == self._unknown) & (found[rows, np.minimum(at + size + 1, width - 1)] == self._unknown)
            fused &= at + size + 1 < width
            found[rows[fused], (at + size + 1)[fused]] = -1
            found[rows, at] = piece
            rows, at = rows[at > 0], at[at > 0]
        return found
