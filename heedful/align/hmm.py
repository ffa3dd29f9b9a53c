"""The hidden Markov model of Vogel, Ney and Tillmann (1996): a word's link depends on where the last one went.

Every target word jumps from the place of the word before it to a place of the source, or stays there and comes from
nothing. In the reverse direction source and target are changed, so that both are computed by the same functions. With
equal weights for all jumps this is IBM model 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.align.cooccurrence import sums

__all__ = ["REACH", "Jumps", "Posterior", "posterior"]

REACH = 12  # jumps this long and longer are of one kind

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


class Jumps(NamedTuple):
    """How often jumps are made: from -REACH to REACH in `between`, to the first place, from 0 to REACH, in `start`."""

    between: NDArray[np.float64]
    start: NDArray[np.float64]

    @classmethod
    def level(cls) -> Jumps:
        """Return jumps that are all as likely as each other."""
        return cls(np.ones(2 * REACH + 1), np.ones(REACH + 1))

    @classmethod
    def none(cls) -> Jumps:
        """Return counts before anything is counted."""
        return cls(np.zeros(2 * REACH + 1), np.zeros(REACH + 1))

    def plus(self, more: Jumps) -> Jumps:
        """Return the sum of two counts."""
        return Jumps(self.between + more.between, self.start + more.start)

    @classmethod
    def near(cls) -> Jumps:
        """Return jumps that are the likelier the nearer to the next word: what is expected before any are counted."""
        return cls(np.exp(-0.3 * np.abs(np.arange(-REACH, REACH + 1) - 1)), np.exp(-0.3 * np.arange(REACH + 1)))

    def smoothed(self, share: float = 1e-4, long: int = 8) -> Jumps:
        """Return weights from counts: none is 0, and the counts of long jumps are those of about `long` places."""
        between, start = (counts + share * counts.sum() + 1e-9 for counts in self)
        for weights, end, near in ((between, 0, 1), (between, -1, -2), (start, -1, -2)):
            weights[end] = min(weights[end] / long, weights[near])
        return Jumps(between / between.sum(), start / start.sum())


class Posterior(NamedTuple):
    """What is expected once both sentences are known: `links` (T, B, S), `nothing` (T, B), and the jumps made."""

    links: Floats
    nothing: Floats
    jumps: Jumps


def posterior(words: Floats, nothing: Floats, keep: Bools, steps: Bools, jumps: Jumps, empty: float) -> Posterior:
    """Return where each word came from, by the forward-backward algorithm.

    `words` (T, B, S) is how likely each word is from each place and `nothing` (T, B) from none; `keep` (B, S) says
    which places there are and `steps` (T, B) which words; `empty` is how often a word comes from nothing.
    """
    length, _, places = words.shape
    at = np.arange(places)
    apart = np.clip(at - at[:, None], -REACH, REACH) + REACH
    matrix = jumps.between[apart].astype(np.float32)
    begin: Floats = np.where(keep, jumps.start[np.minimum(at, REACH)], 0).astype(np.float32)
    begin = begin / begin.sum(1, keepdims=True)
    # All pairs share one matrix, though they differ in length: what leaves a place is divided by what can be reached.
    leave = keep / np.maximum(keep.astype(np.float32) @ matrix.T, np.float32(1e-30))
    # A word that is not there is certain from everywhere, so that it changes nothing.
    come = np.float32(1 - empty) * np.where(steps[:, :, None], words, keep)
    stay = np.float32(empty) * np.where(steps, nothing, np.float32(1))[:, :, None]

    reached, before, after = np.empty_like(come), np.empty_like(come), np.empty_like(come)
    state = begin
    for t in range(length):
        before[t] = state
        reached[t] = (state * leave) @ matrix if t else begin
        state = reached[t] * come[t] + state * stay[t]
        state /= state.sum(1, keepdims=True)
    state = np.ones_like(begin)
    for t in range(length - 1, -1, -1):
        after[t] = state
        state = ((state * come[t]) @ matrix.T) * leave + state * stay[t]
        state /= state.max(1, keepdims=True)

    come *= after
    links = reached * come
    none = (before * after).sum(2) * stay[:, :, 0]
    scale = steps / (links.sum(2) + none)
    links *= scale[:, :, None]
    left = before[1:] * leave * scale[1:, :, None]
    made = (left.reshape(-1, places).T @ come[1:].reshape(-1, places)) * matrix
    between = sums(apart, made, 2 * REACH + 1)
    start = sums(np.minimum(at, REACH), links[0].sum(0), REACH + 1)
    return Posterior(links, none * scale, Jumps(between, start))
