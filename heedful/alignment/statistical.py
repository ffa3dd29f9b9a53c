"""Statistical word aligners: one that learns links from sentence pairs alone, and the program eflomal.

Two hidden Markov models (Vogel, Ney and Tillmann 1996), one for each direction, are trained to agree (Liang, Taskar and
Klein 2006): a link is counted by its probability in both. The first rounds are IBM model 1, in which all jumps are
equally likely. The file has, in order: the aligner, its training, the translation table, the HMM, sentence pairs as
arrays, and eflomal.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.alignment.links import Links, parse
from heedful.errors import ConfigError, DataError, MachineError, pip_command

MOST_CELLS = 1 << 20  # source words times target words, beyond which a pair is left without links
IBM1_ROUNDS, HMM_ROUNDS = 5, 5
ROUNDS = IBM1_ROUNDS + HMM_ROUNDS + 1  # passes over all pairs; the last one finds the links
EMPTY = 0.2  # probability that a word is linked to nothing
UNSEEN = 0.1  # count added to every word among those linked to nothing
STEM = 4  # letters
TRUST = 3.0  # the estimate from stems counts as this many occurrences of a word
SAME_WORD, SAME_STEM = 0.5, 0.1  # prior counts of a pair of equal words, or of equal stems
REACH = 12  # longer jumps share one probability
BATCH_CELLS = 1 << 19  # of a batch at most, so that its arrays stay in the processor's cache
KEY_BITS = 62  # of a number that holds a key and its place

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Counts = NDArray[np.float64]
Flags = NDArray[np.bool_]
OnProgress = Callable[[int], object]


def both_directions(
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    extra: Sequence[tuple[str, str]] = (),
    progress: OnProgress | None = None,
) -> Iterator[tuple[int, Links, Links]]:
    """Yield the number of each pair, its forward links and its reverse links, in any order of the pairs.

    Words are separated by white space and counted from 0. `extra` pairs are learned from, and not linked. `progress` is
    called with the number of pairs read since the last call; all are read ROUNDS times. A pair with an empty side, or
    of more than MOST_CELLS source words times target words, is left out. The result is deterministic.
    """
    if len(sources) != len(targets):
        raise DataError(f"there are {len(sources)} source sentences but {len(targets)} target sentences")
    source = encode_side([*sources, *(x for x, _ in extra)])
    target = encode_side([*targets, *(y for _, y in extra)])
    pairs = cooccurrence(source, target, MOST_CELLS)
    progress = progress or (lambda more: None)
    progress(ROUNDS * (len(sources) + len(extra) - sum(len(batch.rows) for batch in pairs.batches)))
    model = _train(pairs, TranslationTable(pairs, source.vocabulary, target.vocabulary), progress)
    for batch in pairs.batches:
        if batch.rows.min() < len(sources):
            forward, reverse = _expect(model, batch)
            chosen = _best(forward, batch.target_keep), _best(reverse, batch.source_keep)
            for row, from_target, from_source in zip(batch.rows.tolist(), *chosen, strict=True):
                if row < len(sources):
                    links = frozenset((x, y) for y, x in enumerate(from_target) if x >= 0)
                    yield row, links, frozenset((x, y) for x, y in enumerate(from_source) if y >= 0)
        progress(len(batch.rows))


class _AlignmentModel(NamedTuple):
    """Probabilities of both directions, forward first: word pairs, words linked to nothing, jumps."""

    words: tuple[Floats, Floats]
    nothing: tuple[Floats, Floats]
    jumps: tuple[Jumps, Jumps]


class _Counted(NamedTuple):
    """Expected counts of a batch: links by word pair, words linked to nothing (T, B) and (S, B), and jumps."""

    pairs: Counts
    nothing: tuple[Floats, Floats]
    jumps: tuple[Jumps, Jumps]


def _train(pairs: Cooccurrence, lexicon: TranslationTable, progress: OnProgress) -> _AlignmentModel:
    sizes = pairs.targets, pairs.sources  # of what each direction makes
    words = [np.full(len(pairs.source), 1 / max(1, size), np.float32) for size in sizes]
    nothing = [np.full(size + 1, 1 / max(1, size), np.float32) for size in sizes]
    model = _AlignmentModel((words[0], words[1]), (nothing[0], nothing[1]), (Jumps.uniform(),) * 2)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for number in range(1, ROUNDS):
            counts, empty = np.zeros(len(pairs.source)), [np.zeros(size + 1) for size in sizes]
            jumps = [Jumps.none(), Jumps.none()]
            # Summed here, in the order of the batches, so that the result does not depend on the threads.
            for batch, more in zip(pairs.batches, threads.map(partial(_count, model), pairs.batches), strict=True):
                counts[batch.types] += more.pairs
                for side, made in enumerate((batch.target, batch.source)):
                    np.add.at(empty[side], made.T, more.nothing[side])
                    jumps[side] = jumps[side].plus(more.jumps[side])
                progress(len(batch.rows))
            model = _AlignmentModel(
                (lexicon.conditional(0, counts), lexicon.conditional(1, counts)),
                (_shares(empty[0]), _shares(empty[1])),
                _jumps(number, jumps),
            )
    return model


def _jumps(done: int, counted: Sequence[Jumps]) -> tuple[Jumps, Jumps]:
    """Return the jumps of the next round: all equal, then a first guess, then the counts."""
    if done <= IBM1_ROUNDS:
        return (Jumps.uniform() if done < IBM1_ROUNDS else Jumps.near(),) * 2
    return counted[0].smoothed(), counted[1].smoothed()


def _expect(model: _AlignmentModel, batch: PairBatch) -> tuple[Posterior, Posterior]:
    """Return the posteriors of a batch in both directions, (T, B, S) and (S, B, T)."""
    x, y = batch.source_keep, batch.target_keep
    words = [np.append(side[batch.types], np.float32(0))[batch.cells] for side in model.words]
    back = np.ascontiguousarray(words[1].transpose(2, 1, 0))
    forward = posterior(words[0], model.nothing[0][batch.target.T], x, y.T, model.jumps[0], EMPTY)
    return forward, posterior(back, model.nothing[1][batch.source.T], y, x.T, model.jumps[1], EMPTY)


def _count(model: _AlignmentModel, batch: PairBatch) -> _Counted:
    """Count the links that both directions expect; the rest of each word is linked to nothing."""
    forward, reverse = _expect(model, batch)
    both = forward.links * reverse.links.transpose(2, 1, 0)
    pairs = sums(batch.cells, both, len(batch.types) + 1)[:-1]
    nothing = (1 - both.sum(2)) * batch.target_keep.T, (1 - both.sum(0).T) * batch.source_keep.T
    return _Counted(pairs, nothing, (forward.jumps, reverse.jumps))


def _shares(counts: Counts) -> Floats:
    counts = counts + UNSEEN
    shares: Floats = (counts / counts.sum()).astype(np.float32)
    return shares


def _best(expected: Posterior, keep: Flags) -> list[list[int]]:
    """Return the most likely link of each word of each pair, -1 for none.  keep (B, T)."""
    linked = (expected.links.max(2) > expected.nothing) & keep.T
    best: list[list[int]] = np.where(linked, expected.links.argmax(2), -1).T.tolist()
    return best


class TranslationTable:
    """Turns counts of word pairs into translation probabilities, in both directions.

    The estimate for a rare word is interpolated with that of its stem, its first letters: words that begin alike are
    mostly forms of one word. Equal words and equal stems, such as names and numbers, have a small prior count.
    """

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
        same = np.array([places.get(word, -1) for word in source], np.int64)
        long = np.array([len(word) > STEM for word in source], bool)
        alike = (of[0] == of[1]) & long[pairs.source]
        self.prior = np.where(same[pairs.source] == pairs.target, SAME_WORD, np.where(alike, SAME_STEM, 0.0))

    def conditional(self, side: int, counts: Counts) -> NDArray[np.float32]:
        """Return the probability of each word pair's other word, given its word on `side` (0 source, 1 target)."""
        counts = counts + self.prior
        other = 1 - side
        total = sums(self.words[side], counts, self.sizes[side])
        stem_counts = sums(self.stem_pair, counts, len(self.stem_words[0])) + 1e-3
        stem_seen = sums(self.stem_words[side], stem_counts, self.kinds)
        stem_share = stem_counts / stem_seen[self.stem_words[side]]
        word_counts = sums(self.words[other], counts, self.sizes[other]) + 0.1
        in_stem = word_counts / sums(self.stems[other], word_counts, self.kinds)[self.stems[other]]
        expected = stem_share[self.stem_pair] * in_stem[self.words[other]]
        share: NDArray[np.float32] = ((counts + TRUST * expected) / (total + TRUST)[self.words[side]]).astype(
            np.float32
        )
        return share


class Jumps(NamedTuple):
    """How often each jump is made: `between` from -REACH to REACH, and `start`, to the first place, from 0 to REACH."""

    between: NDArray[np.float64]
    start: NDArray[np.float64]

    @classmethod
    def uniform(cls) -> Jumps:
        """Return jumps that are all equally likely: IBM model 1."""
        return cls(np.ones(2 * REACH + 1), np.ones(REACH + 1))

    @classmethod
    def none(cls) -> Jumps:
        """Return counts of 0."""
        return cls(np.zeros(2 * REACH + 1), np.zeros(REACH + 1))

    def plus(self, more: Jumps) -> Jumps:
        """Return the sum of two counts."""
        return Jumps(self.between + more.between, self.start + more.start)

    @classmethod
    def near(cls) -> Jumps:
        """Return a first guess: the nearer to the next word, the likelier a jump."""
        return cls(np.exp(-0.3 * np.abs(np.arange(-REACH, REACH + 1) - 1)), np.exp(-0.3 * np.arange(REACH + 1)))

    def smoothed(self, share: float = 1e-4, long: int = 8) -> Jumps:
        """Return probabilities from counts: none is 0; the long jumps share their count over about `long` places."""
        between, start = (counts + share * counts.sum() + 1e-9 for counts in self)
        for weights, end, near in ((between, 0, 1), (between, -1, -2), (start, -1, -2)):
            weights[end] = min(weights[end] / long, weights[near])
        return Jumps(between / between.sum(), start / start.sum())


class Posterior(NamedTuple):
    """Posterior probabilities given both sentences: `links` (T, B, S), `nothing` (T, B); and expected jumps."""

    links: Floats
    nothing: Floats
    jumps: Jumps


def posterior(words: Floats, nothing: Floats, keep: Flags, steps: Flags, jumps: Jumps, empty: float) -> Posterior:
    """Return the posterior of each word's link, by the forward-backward algorithm.

    Each target word jumps from the place of the word before it to a place of the source, or stays there and is linked
    to nothing. `words` (T, B, S) is the probability of each word given each place, `nothing` (T, B) given none; `keep`
    (B, S) masks places and `steps` (T, B) masks words; `empty` is the probability of a link to nothing.
    """
    length, _, places = words.shape
    at = np.arange(places)
    apart = np.clip(at - at[:, None], -REACH, REACH) + REACH
    matrix = jumps.between[apart].astype(np.float32)
    begin: Floats = np.where(keep, jumps.start[np.minimum(at, REACH)], 0).astype(np.float32)
    begin = begin / begin.sum(1, keepdims=True)
    # All pairs share one matrix although they differ in length: normalise by the places that can be reached.
    leave = keep / np.maximum(keep.astype(np.float32) @ matrix.T, np.float32(1e-30))
    # A padded word has probability 1 from everywhere, so that it changes nothing.
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


@dataclass(frozen=True)
class EncodedSide:
    """One side of all pairs: word ids, sentence after sentence, and where each sentence begins."""

    vocabulary: list[str]
    words: Ints
    begins: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of words of each sentence."""
        return np.diff(self.begins)


def encode_side(sentences: Sequence[str]) -> EncodedSide:
    """Return sentences as word ids, of lower-cased NFC text."""
    numbers: dict[str, int] = {}
    words: list[Ints] = []
    begins = np.zeros(len(sentences) + 1, np.int64)
    for place, sentence in enumerate(sentences, 1):
        tokens = unicodedata.normalize("NFC", sentence).lower().split()
        words.append(np.array([numbers.setdefault(word, len(numbers)) for word in tokens], np.int32))
        begins[place] = begins[place - 1] + len(tokens)
    return EncodedSide(list(numbers), np.concatenate([np.zeros(0, np.int32), *words]), begins)


@dataclass(frozen=True)
class PairBatch:
    """B sentence pairs of similar lengths; S and T are the words of the longest sides.

    `types` (K,) are the ids of the word pairs that occur here, `cells` (T, B, S) the index into `types` of each cell,
    K for padding. `source` (B, S) and `target` (B, T) are word ids, padded with the size of the vocabulary.
    """

    rows: NDArray[np.int64]
    types: Ints
    cells: Ints
    source: Ints
    target: Ints
    source_keep: Flags
    target_keep: Flags


@dataclass(frozen=True)
class Cooccurrence:
    """All pairs of a source word and a target word that occur in one sentence pair, and the batches."""

    source: Ints
    target: Ints
    sources: int
    targets: int
    batches: list[PairBatch]


def cooccurrence(source: EncodedSide, target: EncodedSide, most: int) -> Cooccurrence:
    """Return which words occur together; pairs with an empty side or of more than `most` cells are left out."""
    width = len(target.vocabulary) + 1
    types_of: list[NDArray[np.int64]] = []
    parts = []
    for rows in _rows(source.lengths, target.lengths, most):
        x, x_keep = _padded(source, rows)
        y, y_keep = _padded(target, rows)
        types, cells = _types(x.astype(np.int64) * width + y.T[:, :, None], x_keep & y_keep.T[:, :, None])
        types_of.append(types)
        parts.append((rows, cells, x, y, x_keep, y_keep))
    table = np.unique(np.concatenate([np.zeros(0, np.int64), *types_of]))
    batches = []
    for types, (rows, cells, x, y, x_keep, y_keep) in zip(types_of, parts, strict=True):
        numbers = np.searchsorted(table, types).astype(np.int32)
        batches.append(PairBatch(rows, numbers, cells, x, y, x_keep, y_keep))
    first, second = np.divmod(table, width)
    sizes = len(source.vocabulary), len(target.vocabulary)
    return Cooccurrence(first.astype(np.int32), second.astype(np.int32), *sizes, batches)


def sums(places: NDArray[np.integer[Any]], values: NDArray[np.floating[Any]], size: int) -> NDArray[np.float64]:
    """Return the sum of the values at each of `size` places."""
    added: NDArray[Any] = np.bincount(places.ravel(), values.ravel(), size)
    return added


def _types(keys: NDArray[np.int64], keep: Flags) -> tuple[NDArray[np.int64], Ints]:
    """Return the distinct keys, sorted, and the index of the key at each place.

    A key and its place are sorted as one number, which is several times as fast as sorting places by key. With
    millions of different words on both sides they may not fit in one.
    """
    bits = int(keys.size).bit_length()
    if int(keys.max(initial=0)).bit_length() + bits > KEY_BITS:
        types, inverse = np.unique(keys[keep], return_inverse=True)
        places_of = np.full(keys.shape, len(types), np.int32)
        places_of[keep] = inverse
        return types, places_of
    both = np.sort((keys.ravel() << bits | np.arange(keys.size))[keep.ravel()])
    ordered, places = both >> bits, both & ((1 << bits) - 1)
    new = np.append(True, ordered[1:] != ordered[:-1])
    types = ordered[new]
    cells = np.full(keys.size, len(types), np.int32)
    cells[places] = np.cumsum(new) - 1
    return types, cells.reshape(keys.shape)


def _padded(side: EncodedSide, rows: NDArray[np.int64]) -> tuple[Ints, Flags]:
    """Return the words of some sentences, padded, and their mask.  -> (B, S), (B, S)."""
    lengths = side.lengths[rows]
    places = np.arange(lengths.max())
    keep = places < lengths[:, None]
    flat = np.minimum(side.begins[rows][:, None] + places, len(side.words) - 1)
    return np.where(keep, side.words[flat], len(side.vocabulary)).astype(np.int32), keep


def _rows(source: NDArray[np.int64], target: NDArray[np.int64], most: int) -> Iterator[NDArray[np.int64]]:
    """Yield the pairs of each batch: of nearly the same lengths, and at most BATCH_CELLS."""
    step = np.log(1.15)
    bucket = np.where(target > 12, 12 + np.ceil(np.log(np.maximum(target, 1) / 12) / step), target)
    order = np.lexsort((source, bucket))
    order = order[(source[order] > 0) & (target[order] > 0) & (source[order] * target[order] <= most)]
    begin = 0
    while begin < len(order):
        first = order[begin]
        end = np.searchsorted(bucket[order], bucket[first], "right")
        longest = max(source[first] + 1, 1.15 * source[first])
        end = min(end, begin + np.searchsorted(source[order[begin:end]], longest, "right"))
        room = BATCH_CELLS // int(longest * target[order[begin:end]].max())
        end = min(end, begin + max(1, room))
        yield order[begin:end]
        begin = end


PROGRAM = "eflomal-align"


def eflomal_directions(
    sources: Sequence[str], targets: Sequence[str], *, extra: Sequence[tuple[str, str]] = (), program: str = PROGRAM
) -> Iterator[tuple[int, Links, Links]]:
    """Yield the number of each pair and its links in both directions, as `both_directions` does, by eflomal."""
    path = shutil.which(program)
    if path is None:
        raise ConfigError(
            f"the program {program} was not found; install it with '{pip_command()} install eflomal' "
            "(https://github.com/robertostling/eflomal), or use the method ibm, which needs nothing else"
        )
    whole = [number for number, (x, y) in enumerate(zip(sources, targets, strict=True)) if x.split() and y.split()]
    pairs = [*((sources[n], targets[n]) for n in whole), *((x, y) for x, y in extra if x.split() and y.split())]
    if not whole:
        return
    with tempfile.TemporaryDirectory(prefix="heedful-") as folder:
        names = [Path(folder) / name for name in ("source", "target", "forward", "reverse")]
        for side, name in enumerate(names[:2]):
            # Only spaces separate words for eflomal; other white space would become part of a word.
            text = "".join(" ".join(pair[side].lower().split()) + "\n" for pair in pairs)
            name.write_text(text, encoding="utf-8", newline="\n")
        options = [part for flag, name in zip("stfr", names, strict=True) for part in (f"-{flag}", str(name))]
        done = subprocess.run([path, *options], capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            output = (done.stderr or done.stdout).strip().splitlines()
            raise MachineError(
                f"{program} ended with status {done.returncode}: {output[-1] if output else 'it printed nothing'}"
            )
        outputs = [name.read_text(encoding="utf-8").splitlines() for name in names[2:]]
    if not all(len(lines) == len(pairs) for lines in outputs):
        sizes = " and ".join(str(len(lines)) for lines in outputs)
        raise MachineError(f"{program} wrote {sizes} lines for {len(pairs)} sentence pairs")
    for number, forward, reverse in zip(whole, *outputs, strict=False):
        yield number, parse(forward), parse(reverse)
