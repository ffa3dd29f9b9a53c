"""Aligning the words of given pairs: by the attention of one model or of two, or by a statistical aligner."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from heedful.alignment.links import Links, align_texts, align_trace, pharaoh_lines
from heedful.alignment.statistical import MOST_CELLS, both_directions, eflomal_directions
from heedful.alignment.symmetrize import HEURISTICS, DirectedLinks, symmetrize
from heedful.errors import ConfigError, choose
from heedful.trace import Text
from heedful.trace.alignment import Alignment, Link
from heedful.trace.readout import Readout, Weights

if TYPE_CHECKING:
    from heedful.translator.translation import Translation
    from heedful.translator.translator import Translator


METHODS = ("eflomal", "ibm")
LINKED = 100  # pairs whose links are made together
_WORD = re.compile(r"\S+")
CHECKED = 100  # pairs by which a model of the wrong direction is recognised
# How two directions are combined by default (docs/guide/alignments.md): where every word is linked to its best one, and
# where words may have several links, or none because of </s>, which `product` does not consider.
BEST, OTHERS = "product", "grow-diag-final-and"


class AlignedPairs(NamedTuple):
    """The links of sentence pairs, as (source word, target word) counted from 0, and how two directions were combined.

    `skipped` says for pairs without links why they could not be aligned. `alignments` holds the links with weights and
    character positions, None for a skipped pair, if they were asked for.
    """

    links: list[Links]
    symmetry: str
    skipped: dict[int, str]
    alignments: list[Alignment | None]


def align(  # noqa: PLR0913  (the options of the command)
    pairs: Sequence[tuple[str, str]],
    translator: Translator | None = None,
    *,
    reverse: Translator | None = None,
    method: str = "ibm",
    symmetry: str = "",
    extra: Sequence[tuple[str, str]] = (),
    weights: bool = False,
    batch_tokens: int = 0,
    progress: Callable[[int], object] | None = None,
) -> AlignedPairs:
    """Link the words of sentence pairs; words are what white space separates.

    Without a model, the links are learned from the pairs, and from `extra` ones, by the statistical aligner
    (`method="ibm"`) or by the program eflomal. With a `translator` they are read from its attention by its read-out; a
    `reverse` model, of the other direction, improves them. `symmetry` is how two directions are combined: one of
    `heedful.alignment.HEURISTICS`, or "product" with two models; by default that of the read-out, or
    grow-diag-final-and. With `weights`, the alignments of a model are kept, too. `progress` is called with the number
    of pairs done since the last call; a statistical aligner reads all `heedful.alignment.ROUNDS` times.

    >>> german = ["das haus", "das buch", "ein buch", "ein haus", "das haus ist alt"]
    >>> english = ["the house", "the book", "a book", "a house", "the house is old"]
    >>> sorted(align(list(zip(german, english))).links[-1])
    [(0, 0), (1, 1), (2, 2), (3, 3)]
    """
    if translator is None:
        if reverse is not None:
            raise ConfigError("reverse is a second model, for the other direction; give the first as translator")
        return _align_statistically(pairs, method, symmetry or OTHERS, extra, progress)
    if extra or method != "ibm":
        raise ConfigError("extra and method are for the statistical aligner; leave them out, or the translator")
    return _align_by_model(pairs, translator, reverse, symmetry, weights, batch_tokens, progress)


def _align_statistically(
    pairs: Sequence[tuple[str, str]],
    method: str,
    symmetry: str,
    extra: Sequence[tuple[str, str]],
    progress: Callable[[int], object] | None,
) -> AlignedPairs:
    choose("method", method, METHODS)
    choose("symmetry", symmetry, HEURISTICS)
    sources, targets = [x for x, _ in pairs], [y for _, y in pairs]
    skipped = {}
    if method == "eflomal":
        directions = eflomal_directions(sources, targets, extra=extra)
    else:
        directions = both_directions(sources, targets, extra=extra, progress=progress)
        sizes = [len(x.split()) * len(y.split()) for x, y in pairs]
        why = f"more than {MOST_CELLS:,} source words times target words"
        skipped = {row: why for row, size in enumerate(sizes) if size > MOST_CELLS}
    links: list[Links] = [frozenset()] * len(pairs)
    for row, forward, backward in directions:
        links[row] = symmetrize(forward, backward, symmetry)
    return AlignedPairs(links, symmetry, skipped, [])


def _align_by_model(
    pairs: Sequence[tuple[str, str]],
    translator: Translator,
    reverse: Translator | None,
    symmetry: str,
    weights: bool,
    batch_tokens: int,
    progress: Callable[[int], object] | None,
) -> AlignedPairs:
    if symmetry == "reverse":
        raise ConfigError("symmetry 'reverse' leaves out the first model; swap sources and targets instead")
    how = "none" if symmetry == "forward" else symmetry
    used = "" if reverse is None else symmetry or usual_symmetry(translator.readout, reverse.readout)
    links: list[Links] = [frozenset()] * len(pairs)
    alignments: list[Alignment | None] = [None] * len(pairs) if weights else []
    skipped = {}
    size = translator.texts_at_once(trace=True)
    for first in range(0, len(pairs), size):
        rows = []
        sources, targets = ([pair[side] for pair in pairs[first : first + size]] for side in (0, 1))
        reasons = [translator.pairs_too_long(sources, targets)]
        reasons += [reverse.pairs_too_long(targets, sources)] if reverse else []
        for row, whys in enumerate(zip(*reasons, strict=True), first):
            if why := next(filter(None, whys), ""):
                skipped[row] = why
            elif all(pairs[row]):
                rows.append(row)
        sides = ([pairs[row][side] for row in rows] for side in (0, 1))
        aligned = translator.align(*sides, reverse=reverse, symmetry=how, batch_tokens=batch_tokens)
        for row, alignment in zip(rows, aligned, strict=True):
            links[row] = alignment.pairs
            if weights:
                alignments[row] = alignment
        if progress is not None:
            progress(len(pairs[first : first + size]))
    return AlignedPairs(links, used, skipped, alignments)


def link_pairs(
    read: Iterable[tuple[int, Text, Text, Weights | None]], readout: Readout, spaced: bool = True
) -> dict[int, Alignment]:
    """Return the links of pairs that `Translator.pairs` has read by a read-out, by the number of the pair.

    They are those of one direction. The pairs may come one by one, some are linked at a time.
    """
    rule, left = replace(readout, symmetry="none"), iter(read)
    done: dict[int, Alignment] = {}
    while batch := list(islice(left, LINKED)):
        pairs = [(weights, source, target) for _, source, target, weights in batch]
        done.update(zip([number for number, *_ in batch], align_texts(pairs, rule, spaced), strict=True))
    return done


def align_translations(translations: Iterable[Translation], spaced: bool = True) -> Iterator[Alignment]:
    """Yield the links of translations of one model, some made at a time; they have traces.

    Words are what white space separates, as Pharaoh lines count them, or with `spaced=False` those of the traces.
    """
    left = iter(translations)
    while traces := [one.trace for one in islice(left, LINKED)]:
        pairs = [(trace.tokens(), trace.source, trace.target) for trace in traces]
        yield from align_texts(pairs, traces[0].readout, spaced)


def link_lines(translations: Sequence[Translation]) -> list[str]:
    """Return the links of texts, `0-0 1-2`; words are separated by white space and counted over all sentences."""
    alone = {n: one for n, one in enumerate(translations) if one.length and len(one.sentences) < 2}
    traces = [one.sentences[0].trace if one.sentences else one.trace for one in alone.values()]
    lines = dict(zip(alone, pharaoh_lines(traces), strict=True))
    return [lines[n] if n in lines else _joined_links(one) for n, one in enumerate(translations)]


def _joined_links(translation: Translation) -> str:
    """Return the links of a text of several sentences.

    Weights between all words of the text, which would grow with the square of its length, are never made.
    """
    source, target = (
        [word.start() for word in _WORD.finditer(text)] for text in (translation.source, translation.text)
    )
    links = set()
    for part, (x, y) in zip(translation.sentences, translation.starts, strict=True):
        aligned = align_trace(part.trace, spaced=True)
        for link in aligned.links:
            s, t = x + aligned.source[link.source].start, y + aligned.target[link.target].start
            links.add((bisect_right(source, s) - 1, bisect_right(target, t) - 1))
    return " ".join(f"{s}-{t}" for s, t in sorted(links))


def combine(forward: Alignment, backward: Alignment, how: str) -> Alignment:
    """Combine the alignments of two directions; the source of `backward` is the target of `forward`.

    The weights are the mean of both directions, so that rows no longer sum to 1.
    """
    if [w[:3] for w in (*forward.source, *forward.target)] != [w[:3] for w in (*backward.target, *backward.source)]:
        raise ConfigError("the two models split this text into different words; align by white space (spaced=True)")
    weights: Weights = (forward.weights + backward.weights.T) * np.float32(0.5)
    links = sorted(DirectedLinks.of(forward).combined(DirectedLinks.of(backward).flipped(), how))
    return Alignment(
        forward.source,
        forward.target,
        tuple(Link(s, t, float(weights[t, s])) for s, t in links),
        weights,
        replace(forward.readout, symmetry=how),
    )


def usual_symmetry(forward: Readout, reverse: Readout) -> str:
    """Return how the links of two models are combined by default."""
    if forward.symmetry != "none":
        return forward.symmetry
    return BEST if all(one.threshold == 1 and one.end == "drop" for one in (forward, reverse)) else OTHERS


def wrong_way(translator: Translator, sources: Sequence[str], targets: Sequence[str]) -> str:
    """Return why a model seems to translate in the other direction, judged by its vocabularies, or "".

    This is so if most characters of the sources are unknown, and both sides would be known if they were swapped.
    """
    unknown = _unknown(translator, sources)
    if unknown <= 0.5 or max(_unknown(translator, targets), _unknown(translator, sources, target=True)) >= 0.25:
        return ""
    return (
        f"the model translates in the other direction: {unknown:.0%} of the sources is unknown to it, and the targets "
        "are not"
    )


def check_reverse(translator: Translator, reverse: Translator, sources: Sequence[str], targets: Sequence[str]) -> None:
    """Raise ConfigError if the reverse model translates in the same direction, judged by vocabularies."""
    one, other = translator.parts, reverse.parts
    advice = "; give one that translates from the target language"
    same = "the reverse model translates in the same direction"
    if one.source.dump() == other.source.dump() != other.target.dump():
        raise ConfigError(f"{same}: both have the same source vocabulary{advice}")
    of_sources, of_targets = (_unknown(reverse, side) for side in (sources, targets))
    if of_targets > 0.5 > 2 * of_sources:
        raise ConfigError(f"{same}: {of_targets:.0%} of the targets is unknown to it{advice}")


def _unknown(translator: Translator, texts: Sequence[str], target: bool = False) -> float:
    """Return the share of characters that are unknown to a model, as a source or as a target."""
    texts = texts[:CHECKED]
    missing = sum(len(piece) for pieces in translator.unknown_pieces(texts, target=target) for piece in pieces)
    return missing / max(1, sum(len("".join(text.split())) for text in texts))
