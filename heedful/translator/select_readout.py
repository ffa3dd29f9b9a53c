"""`heedful.select_readout`: read the weights of a model for given pairs, and select how links are read from them.

`measure_alarms` measures how often alarms are raised for wrong and for right translations of a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from heedful.alignment.gold import Gold
from heedful.alignment.links import Links
from heedful.alignment.select_readout import (
    GOLD,
    PairWeights,
    ReadoutSelection,
    ReferenceLinks,
    WeightTable,
    select,
)
from heedful.alignment.symmetrize import DirectedLinks
from heedful.data.formats import spread_first
from heedful.decoding.ensemble import Ensemble
from heedful.errors import ConfigError, DataError
from heedful.interop.folder import write_readout
from heedful.metrics import extract_stats
from heedful.models import Memory
from heedful.observe import AttentionReading, read_attention
from heedful.trace.alarms import ENOUGH, KINDS, AlarmRates, alarms
from heedful.trace.readout import Readout
from heedful.translator.aligning import align, check_reverse
from heedful.translator.translator import Translator

WORST = 0.25  # share of translations with the lowest chrF; those that differ from their reference are wrong
PAIRS = 500  # to translate at most
FEWEST = round(ENOUGH / WORST)  # pairs: with fewer, there cannot be enough wrong translations


def select_readout(
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    gold: Gold | Sequence[Links] | None = None,
    *,
    reverse: Translator | None = None,
    reverse_name: str = "the reverse model",
    max_pairs: int = 1000,
    batch_tokens: int = 4096,
    folder: str | Path | None = None,
) -> ReadoutSelection:
    """Select how links are read from a model's attention weights: layer, heads, step, norms and link rule.

    All read-outs are tried on `max_pairs` of the pairs. Their links are measured against `gold` links (of each pair, in
    order; see `heedful.alignment.read_gold`), or those of a `reverse` model, or those of the statistical aligner, which
    learns from all pairs. With gold links and a reverse model, the way to combine both directions is selected, too.
    The alarms of the selected read-out are measured on up to 500 translations.

    The result's `readout` is the one to use: the best, unless `why_not_saved()` says why the present one stays. It is
    written to the model folder `folder` as readout.json, if one is given and there is something new to write.
    """
    if gold is None:
        pairs = spread_first(list(pairs), max_pairs)
    chosen = [i for i, (x, y) in enumerate(pairs[:max_pairs]) if x and y and not translator.too_long(x, y)]
    if reverse is not None:
        chosen = [i for i in chosen if not reverse.too_long(*reversed(pairs[i]))]
    if len(chosen) < 2:
        raise DataError(f"{len(chosen)} of {len(pairs)} pairs can be read; selecting a read-out takes at least two")
    sources, targets = ([pairs[i][side] for i in chosen] for side in (0, 1))
    backward = None
    if reverse is not None:
        check_reverse(translator, reverse, sources, targets)
        backward = [DirectedLinks.of(one).flipped() for one in reverse.align(targets, sources)]
    if gold is not None:
        known = gold if isinstance(gold, Gold) else Gold(list(gold), list(gold))
        sure, possible = ([links[i] for i in chosen] for links in known[:2])
        reference = ReferenceLinks(sure, possible, GOLD, backward)
    elif backward is not None:
        links = [one.links for one in backward]
        reference = ReferenceLinks(links, links, f"the links of {reverse_name}")
    else:
        links = align(list(zip(sources, targets, strict=True)), extra=pairs[max_pairs:]).links
        reference = ReferenceLinks(links, links, "the statistical aligner's links")
    table = weight_table(translator, sources, targets, batch_tokens)
    config = translator.config.model
    defaults = {"naive": Readout.naive(config), "usual": Readout.usual(translator.config)}
    selection = select(table, reference, defaults, own_readout(translator))
    used = list(zip(sources, targets, strict=True))
    alarms = measure_alarms(translator, used, selection.readout, batch_tokens)
    selection = selection._replace(alarms=alarms, skipped=len(pairs[:max_pairs]) - len(chosen))
    if folder is not None and (not selection.why_not_saved() or alarms is not None):
        write_readout(Path(folder), selection.readout)
    return selection


def own_readout(translator: Translator) -> Readout | None:
    """Return the read-out that was selected for a model, or written by hand; None for the default."""
    own = translator.parts.readout
    return None if own is None or own.is_usual(translator.config) else own


def weight_table(
    translator: Translator, sources: Sequence[str], targets: Sequence[str], batch_tokens: int = 4096
) -> WeightTable:
    """Return the weights of all layers and heads for given pairs, at both steps and with norms."""
    model = translator.parts.model
    if isinstance(model, Ensemble):
        raise ConfigError("an ensemble is several models; select the read-out of each")

    def read(memory: Memory, ids: Sequence[Sequence[int]]) -> list[AttentionReading]:
        return read_attention(model, memory, ids, after=True, norms=True)

    readings = translator.pairs(sources, targets, read, batch_tokens)
    done = {
        row: PairWeights.of(x.spaced(), y.spaced(), reading.weights, reading.after, reading.norms)
        for row, x, y, reading in readings
    }
    return WeightTable([done[row] for row in range(len(done))])


def measure_alarms(
    translator: Translator, pairs: Sequence[tuple[str, str]], readout: Readout | None = None, batch_tokens: int = 4096
) -> AlarmRates | None:
    """Translate the sources of pairs and count the alarms of wrong and of right translations, by a read-out.

    A translation is wrong if it differs from its reference and its chrF is in the lowest quarter; all others are right.
    Returns None for too few pairs, and for a model without attention.
    """
    chosen = [pair for pair in spread_first(list(pairs), PAIRS)[:PAIRS] if all(map(str.strip, pair))]
    if len(chosen) < FEWEST or translator.config.family == "fixed":
        return None
    reader = translator if readout is None else Translator(translator.parts, translator.device, [readout])
    done = reader.translate([source for source, _ in chosen], batch_tokens=batch_tokens)
    stats = extract_stats([one.text for one in done], [target for _, target in chosen], ("chrf", "exact"))
    worst = np.argsort(stats.sentences("chrf"), kind="stable")[: round(WORST * len(done))]
    wrong = np.zeros(len(done), dtype=bool)
    wrong[worst] = True
    wrong &= stats.sentences("exact") == 0
    kinds = [
        {alarm.kind for part in one.sentences or (one,) for alarm in alarms(part.trace, every=True)} for one in done
    ]
    raised = {kind: np.array([kind in each for each in kinds]) for kind in KINDS}
    counts = ((kind, int(marked[wrong].sum()), int(marked[~wrong].sum())) for kind, marked in raised.items())
    return AlarmRates(int(wrong.sum()), int((~wrong).sum()), tuple(counts))
