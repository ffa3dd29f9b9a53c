"""How likely a word is as the translation of another: counts of words, backed by counts of their beginnings.

A word that was seen once says little about its translation. Words that begin alike are mostly forms of one word, so
the share of a rare word is drawn towards that of its stem, which is its first letters; and names, numbers and
cognates look the same in both languages, which counts a little from the start.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from heedful.align.cooccurrence import Cooccurrence, sums

__all__ = ["Lexicon"]

STEM = 4  # letters
TRUST = 3.0  # what is known of stems weighs as much as so many occurrences of a word
SAME_WORD, SAME_STEM = 0.5, 0.1  # occurrences that a pair of equal words, or stems, has beforehand

Counts = NDArray[np.float64]
Numbers = NDArray[np.int64]


class Lexicon:
    """Turns counts of word pairs into probabilities, in both directions."""

    def __init__(self, pairs: Cooccurrence, source: Sequence[str], target: Sequence[str]) -> None:
        self.words = (pairs.source, pairs.target)
        self.sizes = (len(source), len(target))
        stems = {stem: number for number, stem in enumerate(dict.fromkeys(word[:STEM] for word in (*source, *target)))}
        self.stems = tuple(np.array([stems[word[:STEM]] for word in side], np.int64) for side in (source, target))
        self.kinds = len(stems)
        of = tuple(stem[word] for stem, word in zip(self.stems, self.words, strict=True))
        stem_pairs, self.stem_pair = np.unique(of[0] * self.kinds + of[1], return_inverse=True)
        self.stem_words = np.divmod(stem_pairs, self.kinds)
        places = {word: number for number, word in enumerate(target)}
        twins = np.array([places.get(word, -1) for word in source], np.int64)
        long = np.array([len(word) > STEM for word in source], bool)
        alike = (of[0] == of[1]) & long[pairs.source]
        self.beforehand = np.where(twins[pairs.source] == pairs.target, SAME_WORD, np.where(alike, SAME_STEM, 0.0))

    def given(self, side: int, counts: Counts) -> NDArray[np.float32]:
        """Return the probability of each word pair's other word, given its word on `side` (0 source, 1 target)."""
        counts = counts + self.beforehand
        other = 1 - side
        seen = sums(self.words[side], counts, self.sizes[side])
        stem_counts = sums(self.stem_pair, counts, len(self.stem_words[0])) + 1e-3
        stem_seen = sums(self.stem_words[side], stem_counts, self.kinds)
        stem_share = stem_counts / stem_seen[self.stem_words[side]]
        word_counts = sums(self.words[other], counts, self.sizes[other]) + 0.1
        in_stem = word_counts / sums(self.stems[other], word_counts, self.kinds)[self.stems[other]]
        expected = stem_share[self.stem_pair] * in_stem[self.words[other]]
        share: NDArray[np.float32] = ((counts + TRUST * expected) / (seen + TRUST)[self.words[side]]).astype(np.float32)
        return share
