"""A statistical word aligner: it learns from sentence pairs alone which words go together, and links them.

Two hidden Markov models, one in each direction, are trained to agree (Liang, Taskar and Klein 2006): what is counted
is how likely a link is in both. They begin as IBM model 1, which knows no order of words.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.align.cooccurrence import Batch, Cooccurrence, cooccurrence, read_side, sums
from heedful.align.hmm import Jumps, Posterior, posterior
from heedful.align.lexicon import Lexicon
from heedful.align.pharaoh import Links
from heedful.align.symmetry import SYMMETRIES, symmetrise
from heedful.errors import DataError, choose

__all__ = ["MOST_CELLS", "ROUNDS", "align_pairs", "both_directions"]

MOST_CELLS = 1 << 20  # source words times target words, beyond which a pair is left without links
WITHOUT_ORDER, WITH_ORDER = 5, 5
ROUNDS = WITHOUT_ORDER + WITH_ORDER + 1  # times that all pairs are read: the last one finds the links
EMPTY = 0.2  # how often a word comes from nothing
UNSEEN = 0.1  # occurrences that every word has among those that come from nothing

Counts = NDArray[np.float64]
Floats = NDArray[np.float32]
Watch = Callable[[int], None]


def align_pairs(
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    symmetry: str = "grow-diag-final-and",
    extra: Sequence[tuple[str, str]] = (),
    watch: Watch | None = None,
) -> list[Links]:
    """Return the links of each sentence pair; words are what white space separates, counted from 0.

    `symmetry` is one of `heedful.align.SYMMETRIES`; `extra` pairs are learned from, and not linked. `watch` is told how
    many more pairs were read; all are read ROUNDS times. A pair with an empty side has no links, and neither has
    one of more than MOST_CELLS, source words times target words. The same pairs give the same links.

    >>> german = ["das haus", "das buch", "ein buch", "ein haus", "das haus ist alt"]
    >>> english = ["the house", "the book", "a book", "a house", "the house is old"]
    >>> [sorted(links) for links in align_pairs(german, english)][-1]
    [(0, 0), (1, 1), (2, 2), (3, 3)]
    """
    choose("symmetry", symmetry, SYMMETRIES)
    found: list[Links] = [frozenset()] * len(sources)
    for row, forward, reverse in both_directions(sources, targets, extra=extra, watch=watch):
        found[row] = symmetrise(forward, reverse, symmetry)
    return found


def both_directions(
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    extra: Sequence[tuple[str, str]] = (),
    watch: Watch | None = None,
) -> Iterator[tuple[int, Links, Links]]:
    """Yield which pair it is, its links from target words and those from source words, in any order of the pairs.

    Pairs that have no links at all may be left out. The rest is as in `align_pairs`, which puts the two together.
    """
    if len(sources) != len(targets):
        raise DataError(f"there are {len(sources)} source sentences but {len(targets)} target sentences")
    source = read_side([*sources, *(x for x, _ in extra)])
    target = read_side([*targets, *(y for _, y in extra)])
    pairs = cooccurrence(source, target, MOST_CELLS)
    watch = watch or (lambda more: None)
    watch(ROUNDS * (len(sources) + len(extra) - sum(len(batch.rows) for batch in pairs.batches)))
    model = _train(pairs, Lexicon(pairs, source.vocabulary, target.vocabulary), watch)
    for batch in pairs.batches:
        if batch.rows.min() < len(sources):
            forward, reverse = _expect(model, batch)
            chosen = _best(forward, batch.target_keep), _best(reverse, batch.source_keep)
            for row, from_target, from_source in zip(batch.rows.tolist(), *chosen, strict=True):
                if row < len(sources):
                    links = frozenset((x, y) for y, x in enumerate(from_target) if x >= 0)
                    yield row, links, frozenset((x, y) for x, y in enumerate(from_source) if y >= 0)
        watch(len(batch.rows))


class _Model(NamedTuple):
    """Both directions, forward first: of word pairs, of words that come from nothing, and of jumps."""

    words: tuple[Floats, Floats]
    nothing: tuple[Floats, Floats]
    jumps: tuple[Jumps, Jumps]


class _Counted(NamedTuple):
    """What a batch adds: links by word pair, words that came from nothing (T, B) and (S, B), and the jumps made."""

    pairs: Counts
    nothing: tuple[Floats, Floats]
    jumps: tuple[Jumps, Jumps]


def _train(pairs: Cooccurrence, lexicon: Lexicon, watch: Watch) -> _Model:
    sizes = pairs.targets, pairs.sources  # of what each direction makes
    words = [np.full(len(pairs.source), 1 / max(1, size), np.float32) for size in sizes]
    nothing = [np.full(size + 1, 1 / max(1, size), np.float32) for size in sizes]
    model = _Model((words[0], words[1]), (nothing[0], nothing[1]), (Jumps.level(),) * 2)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for number in range(1, ROUNDS):
            counts, empty = np.zeros(len(pairs.source)), [np.zeros(size + 1) for size in sizes]
            jumps = [Jumps.none(), Jumps.none()]
            # Sums are made here and in the order of the batches, so that they do not depend on who is done first.
            for batch, more in zip(pairs.batches, threads.map(partial(_count, model), pairs.batches), strict=True):
                counts[batch.types] += more.pairs
                for side, made in enumerate((batch.target, batch.source)):
                    np.add.at(empty[side], made.T, more.nothing[side])
                    jumps[side] = jumps[side].plus(more.jumps[side])
                watch(len(batch.rows))
            model = _Model(
                (lexicon.given(0, counts), lexicon.given(1, counts)),
                (_shares(empty[0]), _shares(empty[1])),
                _jumps(number, jumps),
            )
    return model


def _jumps(done: int, counted: Sequence[Jumps]) -> tuple[Jumps, Jumps]:
    """Return the jumps of the next round: without order, then a first guess, then what was counted."""
    if done <= WITHOUT_ORDER:
        return (Jumps.level() if done < WITHOUT_ORDER else Jumps.near(),) * 2
    return counted[0].smoothed(), counted[1].smoothed()


def _expect(model: _Model, batch: Batch) -> tuple[Posterior, Posterior]:
    """Return where the words of a batch come from in either direction: (T, B, S) and (S, B, T)."""
    x, y = batch.source_keep, batch.target_keep
    words = [np.append(side[batch.types], np.float32(0))[batch.cells] for side in model.words]
    back = np.ascontiguousarray(words[1].transpose(2, 1, 0))
    forward = posterior(words[0], model.nothing[0][batch.target.T], x, y.T, model.jumps[0], EMPTY)
    return forward, posterior(back, model.nothing[1][batch.source.T], y, x.T, model.jumps[1], EMPTY)


def _count(model: _Model, batch: Batch) -> _Counted:
    """Count the links that both directions expect; a word without any came from nothing."""
    forward, reverse = _expect(model, batch)
    both = forward.links * reverse.links.transpose(2, 1, 0)
    pairs = sums(batch.cells, both, len(batch.types) + 1)[:-1]
    nothing = (1 - both.sum(2)) * batch.target_keep.T, (1 - both.sum(0).T) * batch.source_keep.T
    return _Counted(pairs, nothing, (forward.jumps, reverse.jumps))


def _shares(counts: Counts) -> Floats:
    counts = counts + UNSEEN
    shares: Floats = (counts / counts.sum()).astype(np.float32)
    return shares


def _best(expected: Posterior, keep: NDArray[np.bool_]) -> list[list[int]]:
    """Return for each word of each pair where it most likely came from, -1 for nowhere.  keep (B, T)."""
    linked = (expected.links.max(2) > expected.nothing) & keep.T
    best: list[list[int]] = np.where(linked, expected.links.argmax(2), -1).T.tolist()
    return best
