"""From weights to links: which source words a target word came from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.align.pharaoh import Links
from heedful.errors import ConfigError, ShapeError

__all__ = ["links"]


def links(weights: NDArray[np.floating[Any]], threshold: float) -> Links:
    """Return the links that weights between words speak for.  (target words, source words) as `Trace.words` has them.

    The last row and the last column are `</s>`, which is never linked. A target word is linked to every source word
    whose weight is at least `threshold` times the largest weight of its row: the best always, with all that tie with
    it. A row whose best is `</s>` has no link, and neither has a row of zeros. The threshold is from 0 to 1.

    >>> weights = np.array([[0.7, 0.1, 0.2], [0.3, 0.4, 0.3], [0.0, 0.0, 1.0]])
    >>> sorted(links(weights, 1.0)), sorted(links(weights, 0.5))
    ([(0, 0), (1, 1)], [(0, 0), (0, 1), (1, 1)])
    """
    if not 0 <= threshold <= 1:
        raise ConfigError(f"the threshold is {threshold}; it is a share of the largest weight, from 0 to 1")
    if weights.ndim != 2 or 0 in weights.shape:
        raise ShapeError(f"weights has shape {weights.shape}, expected (target words, source words), each with </s>")
    words, end = weights[:-1, :-1], weights[:-1, -1:]
    best = words.max(axis=1, keepdims=True, initial=0)
    linked = (words >= threshold * best) & (words > 0) & (best >= end)
    return frozenset((int(source), int(target)) for target, source in zip(*np.nonzero(linked), strict=True))
