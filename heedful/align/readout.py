"""From weights to links: which source words a target word came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.align.pharaoh import Links
from heedful.align.ways import OneWay
from heedful.alignment import Alignment, Link
from heedful.errors import ConfigError, ShapeError
from heedful.readout import Readout, evened
from heedful.trace import Text, Trace, Word

__all__ = ["align", "between_words", "counted", "linked", "links", "one_way"]

Numbers = NDArray[np.floating[Any]]
Marks = NDArray[np.bool_]


def align(trace: Trace, readout: Readout | None = None, spaced: bool = False) -> Alignment:
    """Return the links that the weights of a trace speak for.

    A read-out that is given says what makes a link (`end`, `marks`, `even`, `threshold`) in place of the trace's own;
    which weights are read was settled when the trace was made. Words are those of the trace, each token one in scripts
    without spaces; `spaced`, what white space separates, as Pharaoh lines count them in every script.
    """
    tokens, rule = trace.tokens(), readout or trace.readout
    seen = trace.spaced() if spaced else trace
    source, target = seen.source.written, seen.target.written
    if not source or not target:
        return Alignment(source, target, (), np.zeros((len(target), len(source)), dtype=np.float32), rule)
    if tokens is None:
        raise ConfigError(
            "this model has no attention, so that nothing says which words belong together; "
            "models of the families rnn and transformer have"
        )
    weights = between_words(tokens, seen.source, seen.target)
    found = linked(weights, rule, _marks(source), _marks(target))
    pairs = sorted((int(s), int(t)) for t, s in zip(*np.nonzero(found), strict=True))
    return Alignment(source, target, tuple(Link(s, t, float(weights[t, s])) for s, t in pairs), weights[:, :-1], rule)


def between_words(tokens: Numbers, source: Text, target: Text) -> NDArray[np.float32]:
    """Return weights between words from those between tokens.  (…, T, S) -> (…, target words, source words + 1).

    The weight of a source word is the sum over its tokens, that of a target word the mean over its tokens; the last
    column is what went to the source's `</s>`, or to all of them in a text of several sentences.
    """
    into = np.concatenate([_tokens(source), [source.ends]]).astype(np.float32)
    of = _tokens(target).astype(np.float32)
    of /= np.maximum(of.sum(1, keepdims=True), 1)
    return (of @ tokens.astype(np.float32, copy=False) @ into.T).astype(np.float32, copy=False)


def linked(weights: Numbers, readout: Readout, source: Marks, target: Marks) -> NDArray[np.bool_]:
    """Return which words are linked.  (target words, source words + 1), the last column `</s>` -> (target, source).

    `source` and `target` say which words are punctuation.
    """
    words, end = counted(weights[:, :-1], readout, source, target), weights[:, -1:]
    if readout.even:
        end = evened(end, end.sum(0, keepdims=True))
    best = words.max(axis=1, keepdims=True, initial=0)
    found: NDArray[np.bool_] = (words >= readout.threshold * best) & (words > 0)
    return found & (best >= end) if readout.end == "stop" else found


def counted(words: Numbers, readout: Readout, source: Marks, target: Marks) -> Numbers:
    """Return what counts of weights between words: evened, or as they are, marks kept apart, or not.

    words (target words, source words), without `</s>`.
    """
    if readout.even:
        words = evened(words, words.sum(0, keepdims=True))
    return np.where(target[:, None] == source, words, 0) if readout.marks == "apart" else words


def one_way(alignment: Alignment) -> OneWay:
    """Return an alignment's links with the weights that counted, to be joined with the other direction's."""
    readout, source, target = alignment.readout, _marks(alignment.source), _marks(alignment.target)
    return OneWay(alignment.pairs, counted(alignment.weights, readout, source, target), readout.threshold)


def links(weights: Numbers, threshold: float) -> Links:
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


def _marks(words: Sequence[Word]) -> Marks:
    return np.array([word.is_mark for word in words], dtype=np.bool_)


def _tokens(text: Text) -> NDArray[np.bool_]:
    """Which tokens are of which word, without `</s>`.  (words, tokens)."""
    found = np.zeros((len(text.written), len(text.tokens)), dtype=np.bool_)
    for row, word in enumerate(text.written):
        found[row, word.first : word.last] = True
    found[:, np.array(text.ends)] = False
    return found
