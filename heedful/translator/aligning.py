"""Links between the words of given pairs: by one model, or by two that translate in either direction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from heedful.align.readout import align, one_way
from heedful.alignment import Alignment, Link
from heedful.decoding import Ensemble
from heedful.errors import ConfigError, DataError
from heedful.models import Memory
from heedful.observe import Evidence, Reading, Sighted, read
from heedful.readout import SYMMETRIES, Readout, Weights

if TYPE_CHECKING:
    from heedful.translator.translator import Translator

__all__ = ["align_pairs", "check_reverse", "evidence", "joined", "usual_symmetry", "wrong_way"]

LOOKED = 100  # pairs by which a model is known that does not translate the way it is asked to
# How two directions are joined when nobody says (docs/alignments.md): where every word is linked to its best one, and
# where words may have several links, or none because they look at </s>, which `product` does not ask for.
BEST, OTHERS = "product", "grow-diag-final-and"


def align_pairs(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    reverse: Translator | None = None,
    symmetry: str = "",
    spaced: bool = True,
    batch_tokens: int = 4096,
) -> list[Alignment]:
    """Return which words of given pairs belong together; see `Translator.align`."""
    if symmetry and symmetry not in SYMMETRIES:
        raise ConfigError(f"the symmetry is {symmetry!r}; choose from {', '.join(SYMMETRIES)}")
    if symmetry not in ("", "none") and reverse is None:
        raise ConfigError(f"symmetry {symmetry} joins two directions, and there is no reverse model")
    if why := wrong_way(translator, sources, targets):
        raise DataError(f"{why}; swap sources and targets, or take another model")
    if reverse is not None:
        check_reverse(translator, reverse, sources, targets)
    traces = translator.reread(sources, targets, batch_tokens=batch_tokens)
    forward = [align(trace, replace(trace.readout, symmetry="none"), spaced) for trace in traces]
    if reverse is None:
        return forward
    how = symmetry or usual_symmetry(translator.readout, reverse.readout)
    if how == "none":
        return forward
    other = [align(trace, None, spaced) for trace in reverse.reread(targets, sources, batch_tokens=batch_tokens)]
    return [joined(one, back, how) for one, back in zip(forward, other, strict=True)]


def usual_symmetry(forward: Readout, reverse: Readout) -> str:
    """Return how the links of two models are joined when nobody says."""
    if forward.symmetry != "none":
        return forward.symmetry
    return BEST if all(one.threshold == 1 and one.end == "drop" for one in (forward, reverse)) else OTHERS


def wrong_way(translator: Translator, sources: Sequence[str], targets: Sequence[str]) -> str:
    """Return why a model seems to translate the other way, as far as its vocabularies tell, or nothing.

    It cannot read most of the sources, and both sides would be known to it if they were swapped. Where they would not,
    as in a script that it has never seen, it may be the right model all the same.
    """
    reads = _unknown(translator, sources)
    if reads <= 0.5 or max(_unknown(translator, targets), _unknown(translator, sources, target=True)) >= 0.25:
        return ""
    return f"the model goes the other way: {reads:.0%} of the sources is unknown to it, and the targets are not"


def check_reverse(translator: Translator, reverse: Translator, sources: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse a model for the other direction that translates in the same one, as far as vocabularies tell."""
    one, other = translator.parts, reverse.parts
    advice = "; name one that translates from the target language"
    if one.source.dump() == other.source.dump() != other.target.dump():
        raise ConfigError(f"the reverse model goes the same way: both read by the same source vocabulary{advice}")
    reads, wants = (_unknown(reverse, side) for side in (sources, targets))
    if wants > 0.5 > 2 * reads:
        raise ConfigError(f"the reverse model goes the same way: {wants:.0%} of the targets is unknown to it{advice}")


def _unknown(translator: Translator, texts: Sequence[str], target: bool = False) -> float:
    """Return which part of the characters a model cannot read as a source, or as a target."""
    texts = texts[:LOOKED]
    missing = sum(len(piece) for text in texts for piece in translator.unknown(text, target=target))
    return missing / max(1, sum(len("".join(text.split())) for text in texts))


def joined(forward: Alignment, reverse: Alignment, how: str) -> Alignment:
    """Join the links of two directions; `reverse` has the target's words for its source.

    The weights, which are the mean of both directions', no longer sum to 1 in each row.
    """
    if [w[:3] for w in (*forward.source, *forward.target)] != [w[:3] for w in (*reverse.target, *reverse.source)]:
        raise ConfigError("the two models cut this text into other words; align by white space (spaced=True)")
    weights: Weights = (forward.weights + reverse.weights.T) * np.float32(0.5)
    links = sorted(one_way(forward).joined(one_way(reverse).turned(), how))
    return Alignment(
        forward.source,
        forward.target,
        tuple(Link(s, t, float(weights[t, s])) for s, t in links),
        weights,
        replace(forward.readout, symmetry=how),
    )


def evidence(
    translator: Translator, sources: Sequence[str], targets: Sequence[str], batch_tokens: int = 4096
) -> Evidence:
    """Return all that a read-out can be chosen by, from one pass over given pairs."""
    model = translator.parts.model
    if isinstance(model, Ensemble):
        raise ConfigError("an ensemble is several models; choose the read-out of each")

    def look(memory: Memory, ids: Sequence[Sequence[int]]) -> list[Reading]:
        return read(model, memory, ids, after=True, norms=True)

    found = translator.pairs(sources, targets, look, batch_tokens)
    done = {row: Sighted.of(x.spaced(), y.spaced(), seen) for row, x, y, seen in found}
    return Evidence([done[row] for row in range(len(done))])
