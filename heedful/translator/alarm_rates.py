"""Measuring alarm rates: how often alarms are raised for wrong and for right translations of a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heedful.data.formats import spread
from heedful.metrics import extract_stats
from heedful.trace.alarms import ENOUGH, KINDS, AlarmRates, alarms
from heedful.trace.readout import Readout
from heedful.translator.translator import Translator

__all__ = ["FEWEST", "PAIRS", "measure_alarms"]

WORST = 0.25  # share of translations with the lowest chrF; those that differ from their reference are wrong
PAIRS = 500  # to translate at most
FEWEST = round(ENOUGH / WORST)  # pairs: with fewer, there cannot be enough wrong translations


def measure_alarms(
    translator: Translator, pairs: Sequence[tuple[str, str]], readout: Readout | None = None, batch_tokens: int = 4096
) -> AlarmRates | None:
    """Translate the sources of pairs and count the alarms of wrong and of right translations, by a read-out.

    A translation is wrong if it differs from its reference and its chrF is in the lowest quarter; all others are right.
    Returns None for too few pairs, and for a model without attention.
    """
    chosen = [pair for pair in spread(list(pairs), PAIRS)[:PAIRS] if all(map(str.strip, pair))]
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
    raised = {kind: np.array([kind in found for found in kinds]) for kind in KINDS}
    counts = ((kind, int(marked[wrong].sum()), int(marked[~wrong].sum())) for kind, marked in raised.items())
    return AlarmRates(int(wrong.sum()), int((~wrong).sum()), tuple(counts))
