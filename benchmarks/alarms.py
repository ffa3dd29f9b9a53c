"""How well alarms tell bad translations from good ones, and how far weights agree with what words depended on.

python benchmarks/alarms.py MODEL [MODEL …] --source FILE --target FILE [--pairs 1000] [--beam 5] [--influence 100]

Every model translates the sources. A translation is called bad when its chrF against the reference is among the worst
quarter of that model. For each measure: the area under the curve (AUC, 0.5 is chance) and Spearman's correlation with
chrF, beside the model's own confidence; for each alarm at its default limit: how many sentences it marks, and how many
of those are bad, where a quarter is chance. Then, for some sentences, the agreement of the weights with leave-one-out
and gradient × input.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import heedful
from heedful.data import read_lines
from heedful.metrics import extract_stats
from heedful.observe.influence import WAYS, Agreement, agreement, ranks
from heedful.trace.alarms import KINDS, alarms, measure
from heedful.translator import Translation, Translator

BAD = 0.25


class Predictor(NamedTuple):
    """A measure: how well it finds bad translations, and how it goes with chrF."""

    name: str
    auc: float
    correlation: float


class Mark(NamedTuple):
    """An alarm: the share of sentences that it marks, and the share of bad ones among them."""

    name: str
    marked: float
    bad: float


def auc(scores: NDArray[np.float64], bad: NDArray[np.bool_]) -> float:
    """Return how often a bad sentence has the higher score of the two, of all pairs of a bad and a good one.

    >>> auc(np.array([3.0, 1.0, 2.0]), np.array([True, False, False]))
    1.0
    """
    order, count = ranks(scores), int(bad.sum())
    return float((order[bad].sum() - count * (count + 1) / 2) / (count * (len(bad) - count)))


def correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return Spearman's rank correlation; not a number where one of both is always the same."""
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return float("nan")
    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


def predictors(done: Sequence[Translation], chrf: NDArray[np.float64]) -> tuple[list[Predictor], list[Mark]]:
    """Return both tables of a model's translations."""
    seen = [measure(translation.trace) for translation in done]
    kept = [i for i, found in enumerate(seen) if found is not None]
    measures = np.array([seen[i] for i in kept], dtype=float)
    sure = np.array([[1 - done[i].confidence] for i in kept])
    quality = chrf[kept]
    bad = np.zeros(len(quality), dtype=bool)
    bad[np.argsort(quality, kind="stable")[: max(1, round(BAD * len(quality)))]] = True
    columns = np.concatenate([measures, sure], axis=1)
    names = (*KINDS, "1 - confidence")
    table = [
        Predictor(name, auc(column, bad), correlation(column, quality))
        for name, column in zip(names, columns.T, strict=True)
    ]
    told = [{alarm.kind for alarm in alarms(done[i].trace, every=True)} for i in kept]
    marks = [_mark(kind, np.array([kind in kinds for kinds in told]), bad) for kind in KINDS]
    counts = np.array([len(kinds) for kinds in told])
    return table, [*marks, _mark("any", counts > 0, bad), _mark("two or more", counts > 1, bad)]


def _mark(name: str, marked: NDArray[np.bool_], bad: NDArray[np.bool_]) -> Mark:
    return Mark(name, float(marked.mean()), float(bad[marked].mean()) if marked.any() else float("nan"))


def main() -> None:
    """Measure what the command line says."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("models", nargs="+")
    options.add_argument("--source", required=True)
    options.add_argument("--target", required=True)
    options.add_argument("--pairs", type=int, default=1000)
    options.add_argument("--beam", type=int, default=5)
    options.add_argument("--influence", type=int, default=100, help="sentences for the second table")
    given = options.parse_args()
    sources, targets = (list(read_lines(Path(path)))[: given.pairs] for path in (given.source, given.target))
    for path in given.models:
        _report(path, sources, targets, given)


def _report(path: str, sources: list[str], targets: list[str], given: argparse.Namespace) -> None:
    translator = heedful.load(path)
    done = translator.translate(sources, heedful.Decoding(beam=given.beam), split=False)
    stats = extract_stats([d.text for d in done], targets)
    chrf = stats.sentences("chrf")
    print(f"\n## {path}: {len(done)} sentences, read-out: {done[0].trace.readout}")
    table, marks = predictors(done, chrf)
    print("\n| measure | AUC | correlation with chrF |\n|---|---|---|")
    for row in table:
        print(f"| {row.name} | {row.auc:.3f} | {row.correlation:+.3f} |")
    print("\n| alarm | sentences marked | of those bad |\n|---|---|---|")
    for mark in marks:
        print(f"| {mark.name} | {mark.marked:.1%} | {mark.bad:.1%} |")
    print("\n| way | rank correlation with the weights | same first word | words |\n|---|---|---|---|")
    some = [d for d in done if d.text.split()][: given.influence]
    for way in WAYS:
        found = [_agreement(translator, d, way) for d in some]
        sizes = np.array([each.words for each in found])
        kept = sizes > 0
        mean = [float(np.average([each[i] for each in np.array(found)[kept]], weights=sizes[kept])) for i in (0, 1)]
        print(f"| {way} | {mean[0]:+.3f} | {mean[1]:.1%} | {int(sizes.sum()):,} |")


def _agreement(translator: Translator, done: Translation, way: str) -> Agreement:
    """Compare where a translation's words looked with what they depended on; `</s>` is left out on both sides."""
    (trace,) = translator.reread([done.source], [done.text])
    matrices = (trace.words(), translator.influence(done.source, done.text, way).words())
    weights, depended = (np.zeros((0, 0)) if m is None else m[:-1, :-1] for m in matrices)
    return agreement(weights, depended)


if __name__ == "__main__":
    main()
