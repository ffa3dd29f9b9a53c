"""Links between words: the Pharaoh format, and the one rule that gives links from attention weights.

In the Pharaoh format a line is a sentence pair, and each link is `source-target`, counted from 0.

The rule: a target word is linked to each source word that has at least `threshold` times the largest weight of its row.
The read-out (`heedful.trace.Readout`) adds the conditions `even`, `marks` and `end`. Weights are between words, with a
last column for the source's `</s>`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.errors import ConfigError, DataError, ShapeError
from heedful.trace.alignment import Alignment, Link
from heedful.trace.readout import Readout
from heedful.trace.trace import END, Text, Trace, Word

Links = frozenset[tuple[int, int]]  # (source word, target word), counted from 0

CELLS = 2_000_000  # source tokens × target tokens of the pairs whose lines are made together, of 60 bytes each

_LINK = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_WORD = re.compile(r"\S+")


def parse(line: str, where: str = "", base: int = 0) -> Links:
    """Return the links of a line; `base` is what the file counts from, `where` is for the errors.

    >>> sorted(parse("0-0 1-2 2-1"))
    [(0, 0), (1, 2), (2, 1)]
    >>> sorted(parse("1-1 2-3", base=1))
    [(0, 0), (1, 2)]
    """
    at = f"{where}: " if where else ""
    links = set()
    for item in line.split():
        match = _LINK.fullmatch(item)
        if match is None:
            raise DataError(f"{at}expected links such as '0-0 1-2', source word and target word, found '{item[:60]}'")
        source, target = int(match[1]), int(match[2])
        if min(source, target) < base:
            raise DataError(f"{at}words are counted from {base} here, found '{item}'")
        links.add((source - base, target - base))
    return frozenset(links)


def text(links: Links) -> str:
    """Return links as a line, sorted, counted from 0; `parse` takes it back.

    >>> text(frozenset({(1, 2), (0, 0)}))
    '0-0 1-2'
    """
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def flip(links: Links) -> Links:
    """Return the links with source and target exchanged, (target word, source word).

    >>> flip(frozenset({(1, 2)}))
    frozenset({(2, 1)})
    """
    return frozenset((target, source) for source, target in links)


Numbers = NDArray[np.floating[Any]]
Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]
EVEN = 0.25  # of a row is added to the sum of every source word, when weights are evened


class WordCells:
    """The cells of weights between words, of many sentence pairs, as one flat array.

    Cells run pair by pair, target word by target word, and over the source words, with `</s>` as the last of each row.
    A pair is two arrays of flags: which words are punctuation, of the source and of the target.
    """

    def __init__(self, pairs: Sequence[tuple[Flags, Flags]]) -> None:
        self.shapes = [(len(target), len(source) + 1) for source, target in pairs]
        sizes = [T * S for T, S in self.shapes]
        self.pair_starts: Indices = np.append(0, np.cumsum(sizes, dtype=np.int64))
        self.row_sizes: Indices = np.repeat([S for _, S in self.shapes], [T for T, _ in self.shapes])
        self.row_starts: Indices = np.append(0, np.cumsum(self.row_sizes))[:-1]
        self.row_ends: Indices = self.row_starts + self.row_sizes - 1  # the cells of </s>
        first = np.append(0, np.cumsum([S for _, S in self.shapes], dtype=np.int64))
        columns = [start + np.tile(np.arange(S), T) for start, (T, S) in zip(first, self.shapes, strict=False)]
        self.columns: Indices = np.concatenate([np.zeros(0, np.int64), *columns])
        kinds = [
            np.append(target[:, None] == source, np.ones((len(target), 1), bool), axis=1) for source, target in pairs
        ]
        self.same_kind: Flags = np.concatenate([np.zeros(0, bool), *(each.ravel() for each in kinds)])

    def counted(self, weights: Numbers, readout: Readout) -> Numbers:
        """Return the weights that are compared.  (cells,) -> (cells,).

        With `even`, each weight is divided by what its source word received in all rows of the pair, plus EVEN: a word
        that every row attends to, such as a full stop, is no evidence of a link. EVEN keeps a word that hardly
        receives anything from winning by that. With `marks="apart"`, a weight between a word and punctuation is 0.
        """
        if readout.even:
            sums = np.bincount(self.columns, weights=weights) + EVEN
            weights = weights / sums.astype(weights.dtype)[self.columns]
        return np.where(self.same_kind, weights, 0) if readout.marks == "apart" else weights

    def shares(self, weights: Numbers, readout: Readout) -> Numbers:
        """Return each weight as a share of the largest of its row; 0 where there can be no link.  (cells,) -> (cells,).

        `</s>` is never linked. With `end="stop"`, a row whose largest weight is on `</s>` has no links.
        """
        counted = self.counted(weights, readout)
        words = counted.copy()
        words[self.row_ends] = 0
        largest = np.maximum.reduceat(words, self.row_starts) if len(self.row_starts) else words
        linked = largest > 0
        if readout.end == "stop":
            linked &= largest >= counted[self.row_ends]
        divisor = np.where(linked, largest, words.dtype.type(np.inf))
        shares: Numbers = words / np.repeat(divisor, self.row_sizes)
        return shares

    def linked(self, weights: Numbers, readout: Readout) -> Flags:
        """Return which cells are links: those with a share of at least `threshold`.  (cells,) -> (cells,)."""
        shares = self.shares(weights, readout)
        return (shares > 0) & (shares >= readout.threshold)

    def split(self, cells: NDArray[Any]) -> list[NDArray[Any]]:
        """Return a flat array as one matrix for each pair, (target words, source words + 1)."""
        return [
            cells[start : start + T * S].reshape(T, S)
            for start, (T, S) in zip(self.pair_starts, self.shapes, strict=False)
        ]


def link_words(weights: Numbers, readout: Readout, source: Flags, target: Flags) -> Links:
    """Return the links of one pair.  weights (target words, source words + 1), the last column `</s>`.

    `source` and `target` are flags of the words that are punctuation.

    >>> weights, words = np.array([[0.7, 0.1, 0.2], [0.3, 0.4, 0.3]]), np.zeros(2, bool)
    >>> [sorted(link_words(weights, Readout(threshold=share), words, words)) for share in (1.0, 0.5)]
    [[(0, 0), (1, 1)], [(0, 0), (0, 1), (1, 1)]]
    """
    if weights.shape != (len(target), len(source) + 1):
        raise ShapeError(f"weights has shape {weights.shape}, expected ({len(target)}, {len(source) + 1}) with </s>")
    cells = WordCells([(source, target)])
    return matrix_links(cells.split(cells.linked(weights.ravel(), readout))[0])


def matrix_links(linked: Flags) -> Links:
    """Return a matrix of flags, (target words, source words or more), as links (source word, target word)."""
    return frozenset((int(s), int(t)) for t, s in zip(*np.nonzero(linked), strict=True))


def counted_weights(alignment: Alignment) -> Numbers:
    """Return the weights of an alignment as its read-out compares them.  (target words, source words)."""
    source, target = punctuation(alignment.source), punctuation(alignment.target)
    cells = WordCells([(source, target)])
    with_end = np.append(alignment.weights, np.zeros((len(target), 1), alignment.weights.dtype), axis=1)
    return cells.split(cells.counted(with_end.ravel(), alignment.readout))[0][:, :-1]


def align_trace(trace: Trace, readout: Readout | None = None, spaced: bool = False) -> Alignment:
    """Return the links that the weights of a trace give.

    `readout` replaces the link rule of the trace's own (`end`, `marks`, `even`, `threshold`); which layers and heads
    are read was settled when the trace was made. Words are those of the trace, where in scripts without spaces each
    token is a word; with `spaced`, words are what white space separates, as Pharaoh lines count them.
    """
    return align_texts([(trace.tokens(), trace.source, trace.target)], readout or trace.readout, spaced)[0]


def align_texts(
    pairs: Sequence[tuple[NDArray[np.float32] | None, Text, Text]], readout: Readout, spaced: bool = False
) -> list[Alignment]:
    """Return the links of many pairs, each the weights between its tokens (T, S), its source and its target.

    The rule is that of the read-out; see `align_trace`.
    """
    words: list[tuple[tuple[Word, ...], tuple[Word, ...]]] = []
    weighted: dict[int, NDArray[np.float32]] = {}
    for row, (tokens, source, target) in enumerate(pairs):
        source, target = (source.spaced(), target.spaced()) if spaced else (source, target)
        words.append((source.written, target.written))
        if not all(words[row]):
            continue
        if tokens is None:
            raise ConfigError(
                "this model has no attention, so there are no weights to read links from; "
                "models of the families rnn and transformer have attention"
            )
        weighted[row] = between_words(tokens, source, target)
    links = _links_of({row: words[row] for row in weighted}, weighted, readout)
    nothing = {row: np.zeros((len(y), len(x)), np.float32) for row, (x, y) in enumerate(words) if row not in weighted}
    return [
        Alignment(x, y, links.get(row, ()), weighted[row][:, :-1] if row in weighted else nothing[row], readout)
        for row, (x, y) in enumerate(words)
    ]


def _links_of(
    words: Mapping[int, tuple[Sequence[Word], Sequence[Word]]], weights: Mapping[int, Numbers], readout: Readout
) -> dict[int, tuple[Link, ...]]:
    """Return the links of pairs, sorted by source word and target word, from the weights between their words."""
    if not words:
        return {}
    cells = WordCells([(punctuation(source), punctuation(target)) for source, target in words.values()])
    linked = cells.linked(np.concatenate([one.ravel() for one in weights.values()]), readout)
    links = {}
    for (row, each), flags in zip(weights.items(), cells.split(linked), strict=True):
        source, target = np.nonzero(flags.T)
        links[row] = tuple(map(Link, source.tolist(), target.tolist(), each[target, source].tolist()))
    return links


def between_words(tokens: Numbers, source: Text, target: Text) -> NDArray[np.float32]:
    """Return weights between words from weights between tokens.  (…, T, S) -> (…, target words, source words + 1).

    The weight of a source word is the sum over its tokens, that of a target word the mean over its tokens. The last
    column is the source's `</s>`, or the sum over all of them in a text of several sentences.
    """
    tokens = tokens.astype(np.float32, copy=False)
    columns, rows = _first_tokens(source), _first_tokens(target)
    if columns is not None and rows is not None:
        sums = np.add.reduceat(np.add.reduceat(tokens, columns, axis=-1), rows, axis=-2)[..., :-1, :]
        return (sums / np.diff(rows).astype(np.float32)[:, None]).astype(np.float32, copy=False)
    into, of = _tokens(source), _tokens(target)[:-1]
    of /= np.maximum(of.sum(1, keepdims=True), 1)
    return (of @ tokens @ into.T).astype(np.float32, copy=False)


def _first_tokens(text: Text) -> list[int] | None:
    """Return the first token of each word, and the last token, `</s>`; None unless words have all others, and some."""
    words, last = text.written, len(text.tokens) - 1
    firsts = [*(word.first for word in words), last]
    if [0, *(word.last for word in words)] != firsts or text.tokens.count(END) > 1:
        return None
    return firsts if len(set(firsts)) == len(firsts) else None


def punctuation(words: Sequence[Word]) -> Flags:
    """Return which words are punctuation and nothing else.  (words,)."""
    return np.array([not word.text.isalnum() and word.is_mark for word in words], dtype=np.bool_)


def _tokens(text: Text) -> NDArray[np.float32]:
    """Return 1 where a token belongs to a word, and in a last row where it ends a sentence.  (words + 1, tokens)."""
    words, ends = text.written, np.array(text.ends)
    belongs = np.zeros((len(words) + 1, len(ends)), dtype=np.float32)
    for row, word in enumerate(words):
        belongs[row, word.first : word.last] = 1
    belongs[:, ends] = 0
    belongs[-1, ends] = 1
    return belongs


def pharaoh_lines(traces: Sequence[Trace]) -> list[str]:
    """Return the links of traces of single sentences, all of one read-out, as lines in the Pharaoh format.

    The lines are those of `str(align_trace(trace, spaced=True))`, in a fraction of the time, because all pairs are one
    flat array. Raises ConfigError for a model without attention.
    """
    lines, some, cells = list[str](), list[Trace](), 0
    for trace in traces:
        some.append(trace)
        cells += len(trace.source.tokens) * len(trace.target.tokens)
        if cells > CELLS:
            lines += _pharaoh_lines(some)
            some, cells = [], 0
    return lines + _pharaoh_lines(some)


def _pharaoh_lines(traces: Sequence[Trace]) -> list[str]:
    """Return the same for traces that are small enough to be one flat array."""
    sides = [(_words_of_tokens(trace.source), _words_of_tokens(trace.target)) for trace in traces]
    numbers = [n for n, ((source, _), (target, _)) in enumerate(sides) if source and target]
    lines = [""] * len(traces)
    if not numbers:
        return lines
    cells = WordCells([(_marks(sides[n][0][0]), _marks(sides[n][1][0])) for n in numbers])
    weights = _between_words([traces[n] for n in numbers], [(sides[n][0][1], sides[n][1][1]) for n in numbers], cells)
    for number, line in zip(numbers, _lines(cells, weights, traces[numbers[0]].readout), strict=True):
        lines[number] = line
    return lines


def _words_of_tokens(text: Text) -> tuple[list[str], list[int]]:
    """Return the words of a sentence, and for each token the number of its word; that of `</s>` is one past the last.

    A token behind the last word has none, -1. A token begins before the end of its word, and not before an earlier one.
    """
    matches = list(_WORD.finditer(text.text))
    ends, count, word, numbers = [match.end() for match in matches], len(matches), 0, []
    for start, _ in text.spans:
        while word < count and ends[word] <= start:
            word += 1
        numbers.append(word if word < count else -1)
    numbers[-1] = count
    return [match[0] for match in matches], numbers


@lru_cache(maxsize=1 << 16)
def _is_mark(word: str) -> bool:
    return Word(word, 0, len(word), 0, 0).is_mark


def _marks(words: Sequence[str]) -> NDArray[np.bool_]:
    return np.fromiter(map(_is_mark, words), np.bool_, len(words))


def _between_words(
    traces: Sequence[Trace], sides: Sequence[tuple[list[int], list[int]]], cells: WordCells
) -> NDArray[np.float32]:
    """Return the weights between words: sums over the tokens of a source word, means over those of a target word."""
    weights = [trace.tokens() for trace in traces]
    if any(each is None for each in weights):
        raise ConfigError("this model has no attention, so there are no weights to read links from")
    outside = cells.pair_starts[-1]  # a cell for what is in no word
    source, target = (np.array([n for side in sides for n in side[i]], dtype=np.int64) for i in range(2))
    counts = np.array([(len(side[0]), len(side[1])) for side in sides], dtype=np.int64)  # tokens of each pair
    words = np.array([S for _, S in cells.shapes], dtype=np.int64)
    rows = np.array([T for T, _ in cells.shapes], dtype=np.int64)
    pair = np.repeat(np.arange(len(sides)), counts[:, 1])  # of each target token
    inside = (target >= 0) & (target < rows[pair])
    first = np.where(inside, cells.pair_starts[pair] + target * words[pair], outside)  # cell of each target token
    # Each target token has as many weights as its pair has source tokens.
    row = np.repeat(np.arange(len(target)), counts[pair, 0])
    starts = np.cumsum(counts[:, 0]) - counts[:, 0]
    sizes = counts[pair, 0]
    column = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    own = source[starts[pair[row]] + column]
    place = np.where((own >= 0) & inside[row], first[row] + own, outside)
    values = np.concatenate([np.ravel(each) for each in weights if each is not None])
    sums = np.bincount(place, values, outside + 1)[:outside]
    of_words = np.bincount((np.cumsum(rows) - rows)[pair[inside]] + target[inside], minlength=int(rows.sum()))
    means: NDArray[np.float32] = (sums / np.repeat(np.maximum(of_words, 1), cells.row_sizes)).astype(np.float32)
    return means


def _lines(cells: WordCells, weights: NDArray[np.float32], readout: Readout) -> list[str]:
    """Return the links of each pair as a line, sorted by source and target word."""
    linked = np.flatnonzero(cells.linked(weights, readout))
    pairs = np.searchsorted(cells.pair_starts, linked, side="right") - 1
    widths = np.array([S for _, S in cells.shapes], dtype=np.int64)[pairs]
    target, source = np.divmod(linked - cells.pair_starts[pairs], widths)
    order = np.lexsort((target, source, pairs))
    links = [f"{s}-{t}" for s, t in zip(source[order].tolist(), target[order].tolist(), strict=True)]
    ends = np.searchsorted(pairs[order], np.arange(len(cells.shapes) + 1)).tolist()
    return [" ".join(links[first:last]) for first, last in pairwise(ends)]
