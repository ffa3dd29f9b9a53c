"""CIDEr-D and ROUGE-L of captions: n-grams weighted by how rare they are, and the longest common subsequence.

Both compare lists of tokens, an output and one or several references for each image, and give one score an image; the
score of a test set is their mean. They equal the Python implementations in PyPI's `pycocoevalcap` on the same tokens.
`caption_tokens` makes the tokens.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from heedful.errors import DataError
from heedful.trace.trace import unspaced

ORDERS = 4  # n-grams of 1 to this many tokens
SIGMA = 6.0  # of the penalty for a length that differs from the reference's, in tokens
SCALE = 10.0  # CIDEr-D is from 0 to this
BETA = 1.2  # ROUGE-L counts recall this many times as much as precision

Tokens = Sequence[str]
Ngram = tuple[str, ...]
Array = NDArray[np.float64]


def caption_tokens(text: str) -> list[str]:
    """Return the tokens of a caption: lower-case NFC words without punctuation.

    A word is letters, digits and combining marks (the vowel signs of Hindi are some), with hyphens, apostrophes,
    and points or commas between digits inside. English clitics are split off as in the Penn Treebank. In scripts
    without spaces every character is a token.

    >>> caption_tokens("A dog's T-shirt, 2.5 m long; don't ask!")
    ['a', 'dog', "'s", 't-shirt', '2.5', 'm', 'long', 'do', "n't", 'ask']
    >>> caption_tokens("एक छोटा घर।")
    ['एक', 'छोटा', 'घर']
    """
    lower = unicodedata.normalize("NFC", text.lower()).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    kept = _OUTSIDE.sub(" ", "".join(map(_token_character, lower)))
    return _CLITIC.sub(r" \1", kept).split()


# A mark inside a word stands between word characters: an apostrophe or hyphen between any, a point or comma between
# digits. Any other becomes a space.
_OUTSIDE = re.compile(r"(?<![^\s'.,-])['-]|['-](?![^\s'.,-])|(?<!\d)[.,]|[.,](?!\d)")
_CLITIC = re.compile(r"(n't|'(?:s|d|m|re|ve|ll))(?!\S)")


@lru_cache(maxsize=4096)
def _token_character(character: str) -> str:
    """Return a character of a word as it is, with spaces around it if it is a token of its own; a space for others."""
    if unicodedata.category(character)[0] in "LMN" or character in "'-.,\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}":
        alone = character.isalpha() and unspaced(character)
        return f" {character}" if alone else character
    return " "


def cider_d(outputs: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> Array:
    """Return the CIDEr-D of each image's output against its references, from 0 to 10.  (images,).

    Every n-gram counts by how often it occurs in a caption, times the log of images / images whose references have
    it. For each n from 1 to 4, the cosine of output and reference, with counts clipped to the reference's and a
    Gaussian penalty for another length; the mean over n and over references. All images have to be given at once:
    they are what rare means. An n-gram in the references of every image counts nothing, so one image alone has 0.
    Raise DataError if there are no images, or one has no references.

    >>> cider_d([["a", "red", "bird"], ["a", "house"]], [[["a", "red", "bird"]], [["a", "tree"]]]).round(2).tolist()
    [7.5, 0.0]
    """
    _check(outputs, references)
    counted = [[_ngrams(reference) for reference in each] for each in references]
    images = Counter(ngram for each in counted for ngram in set().union(*each))
    rarity = {ngram: log(len(counted)) - log(count) for ngram, count in images.items()}
    unseen = log(len(counted))
    scores = []
    for output, each in zip(outputs, counted, strict=True):
        mine = _WeightedNgrams.of(_ngrams(output), rarity, unseen)
        total = sum(mine.similarity(_WeightedNgrams.of(reference, rarity, unseen)) for reference in each)
        scores.append(SCALE * total / len(each))
    return np.array(scores)


def rouge_l(outputs: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> Array:
    """Return the ROUGE-L of each image's output against its references, from 0 to 1.  (images,).

    The longest common subsequence as a share of the output is precision, as a share of the reference recall. Each is
    the best over the references, and the score is their F-measure with beta 1.2. An empty output has 0.

    >>> rouge_l([["a", "red", "bird", "sings"]], [[["a", "bird", "sings"], ["birds"]]]).round(4).tolist()
    [0.8798]
    """
    _check(outputs, references)
    scores = []
    for output, each in zip(outputs, references, strict=True):
        common = [(_common(output, reference), len(reference)) for reference in each]
        precision = max(length / max(len(output), 1) for length, _ in common)
        recall = max(length / max(size, 1) for length, size in common)
        weighed = recall + BETA**2 * precision
        scores.append((1 + BETA**2) * precision * recall / weighed if weighed else 0.0)
    return np.array(scores)


def _check(outputs: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> None:
    if len(outputs) != len(references):
        raise DataError(f"{len(outputs)} captions for the references of {len(references)} images")
    if not outputs:
        raise DataError("there is nothing to score: no captions")
    for number, each in enumerate(references, 1):
        if not each:
            raise DataError(f"image {number} of {len(references)} has no references")


def _ngrams(tokens: Tokens) -> Counter[Ngram]:
    """Count the n-grams of 1 to 4 tokens."""
    return Counter(tuple(tokens[i : i + n]) for n in range(1, ORDERS + 1) for i in range(len(tokens) - n + 1))


class _WeightedNgrams:
    """The weighted n-grams of a caption, by n, the norm of each n, and the number of pairs of neighbours."""

    def __init__(self, weights: list[dict[Ngram, float]], pairs: int) -> None:
        self.weights, self.pairs = weights, pairs
        self.norms = [sqrt(sum(weight**2 for weight in each.values())) for each in weights]

    @classmethod
    def of(cls, counts: Counter[Ngram], rarity: Mapping[Ngram, float], unseen: float) -> _WeightedNgrams:
        weights: list[dict[Ngram, float]] = [{} for _ in range(ORDERS)]
        for ngram, count in counts.items():
            weights[len(ngram) - 1][ngram] = count * rarity.get(ngram, unseen)
        return cls(weights, sum(count for ngram, count in counts.items() if len(ngram) == 2))

    def similarity(self, reference: _WeightedNgrams) -> float:
        """Return the mean over n of the clipped cosines, times the penalty for another length.

        Lengths are counted in pairs of neighbours, as pycocoevalcap does: 0 for one token and for none.
        """
        penalty = exp(-((self.pairs - reference.pairs) ** 2) / (2 * SIGMA**2))
        total = 0.0
        for mine, other, norm, other_norm in zip(
            self.weights, reference.weights, self.norms, reference.norms, strict=True
        ):
            if norm and other_norm:
                product = sum(
                    min(weight, other[ngram]) * other[ngram] for ngram, weight in mine.items() if ngram in other
                )
                total += product / (norm * other_norm)
        return penalty * total / ORDERS


def _common(first: Tokens, second: Tokens) -> int:
    """Return the length of the longest common subsequence."""
    before = [0] * (len(second) + 1)
    for token in first:
        row = [0]
        for j, other in enumerate(second):
            row.append(before[j] + 1 if token == other else max(before[j + 1], row[j]))
        before = row
    return before[-1]
