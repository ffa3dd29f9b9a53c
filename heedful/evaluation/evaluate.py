"""`heedful.evaluate`: the scores of a system on a test set, with intervals, by length, and against another system."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import heedful
from heedful.evaluation.systems import AnySystem, Pairs, ProgressBar, System, SystemOutput, TestSet, no_progress, run
from heedful.metrics.scores import LengthTable, table
from heedful.metrics.sentence_stats import METRICS, SentenceStats
from heedful.metrics.significance import (
    RESAMPLES,
    SEED,
    TRIALS,
    Difference,
    Interval,
    differences,
    intervals,
)
from heedful.metrics.significance import check_test as check_test  # for commands, before they read a test set
from heedful.text import count

WIDTHS = {"bleu": 6, "chrf": 6, "ter": 6, "exact": 8}  # columns of the text tables
ENDS = (("95 % from", "low"), ("95 % to", "high"))


@dataclass(frozen=True)
class Evaluation:
    """The scores of a system, their 95 % intervals, and the differences from another system, by metric.

    `outputs` are those of the system, and of the other one if there is one.
    """

    scores: LengthTable
    intervals: Mapping[str, Interval]
    differences: Mapping[str, Difference]
    outputs: tuple[SystemOutput, ...]
    test: str
    resamples: int
    seed: int

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it."""
        ends = {"intervals": {name: list(ends) for name, ends in self.intervals.items()}} if self.intervals else {}
        drawn = {"resamples": self.resamples, "seed": self.seed}
        record = {"model": self.outputs[0].name, **self.scores.plain(), **ends, **drawn}
        if self.differences:
            versus = {name: one.plain() for name, one in self.differences.items()}
            record["against"] = {"model": self.outputs[1].name, "test": self.test, **versus}
        return record

    def table(self) -> str:
        """Return the scores by source length as text, with the intervals below the last row."""
        lines = [f"{'source words':<12} {'pairs':>7} {_titles()}"]
        for label, row in [*((row.label, row) for row in self.scores.rows), ("all", self.scores.total)]:
            lines.append(f"{label:<12} {row.pairs:>7,} {_cells(row.plain())}")
        for label, end in ENDS if self.intervals else ():
            lines.append(_line(label, {name: getattr(one, end) for name, one in self.intervals.items()}))
        return "\n".join(lines)

    def notes(self) -> tuple[str, ...]:
        """Return how the scores were computed, a line each."""
        return method_notes(
            self.outputs[0].stats.signatures, self.test if self.differences else "", self.resamples, self.seed
        )


def evaluate(  # noqa: PLR0913  (the options of the command)
    system: AnySystem,
    pairs: TestSet | Pairs,
    decoding: heedful.Decoding | None = None,
    *,
    against: AnySystem | None = None,
    test: str = "randomisation",
    resamples: int = RESAMPLES,
    seed: int = SEED,
    copy_unknown: bool = False,
    batch_tokens: int = 4096,
    progress: ProgressBar = no_progress,
) -> Evaluation:
    """Translate test sentences and score the translations: BLEU, chrF, TER and exact match, by source length.

    `system` is a translator, a model's folder, or a list of translations, one for each pair. `pairs` are (source,
    reference) or (source, reference, reference, …); pairs with an empty side are not measured. Each source is
    translated as one sentence. `against` is another system; `test` is the significance test of the difference,
    "randomisation" or "bootstrap". `resamples` are those of the bootstrap, for the intervals; 0 leaves them out.
    `decoding` has the decoding settings, such as `Decoding(beam=5)`. `progress` makes progress bars (`ProgressBar`).

    >>> pairs = [("eins zwei drei vier", "one two three four"), ("", "")]
    >>> evaluate(["one two three four", ""], pairs, resamples=0).scores.total.bleu
    100.0
    """
    check_test(test, resamples if against is not None else 1)
    test_set, how = TestSet.of(pairs), decoding or heedful.Decoding()
    systems = [System.of(system)] + ([] if against is None else [System.of(against, default="the other system")])
    outputs = tuple(
        run(one, test_set, how, copy_unknown=copy_unknown, batch_tokens=batch_tokens, progress=progress)
        for one in systems
    )
    first, *other = (output.stats for output in outputs)
    return Evaluation(
        length_table(first, test_set),
        intervals(first, resamples, seed) if resamples else {},
        differences(first, other[0], test, resamples, seed) if other else {},
        outputs,
        test,
        resamples,
        seed,
    )


def difference_table(title: str, differences: Mapping[str, Difference], names: tuple[str, str]) -> str:
    """Return the scores of two systems by metric, the difference with its interval, and the verdicts, as text.

    A system without a name is left out.
    """
    lines = [f"{title:<20} {_titles()}"]
    for name, which in zip(names, ("first", "second"), strict=True):
        lines += [_line(name, {key: getattr(one, which) for key, one in differences.items()})] if name else []
    lines.append(_line("difference", {key: one.value for key, one in differences.items()}, "+"))
    for label, end in ENDS if all(one.interval for one in differences.values()) else ():
        lines.append(_line(label, {key: getattr(one.interval, end) for key, one in differences.items()}, "+"))
    verdicts = (f"{METRICS[key].removesuffix(' %'):<7}{one}" for key, one in differences.items())
    return "\n".join([*lines, "", *verdicts])


def _titles() -> str:
    return " ".join(f"{METRICS[name]:>{width}}" for name, width in WIDTHS.items())


def _line(label: str, values: Mapping[str, Any], sign: str = "") -> str:
    return f"{label:<20} {_cells(values, sign)}"


def _cells(values: Mapping[str, Any], sign: str = "") -> str:
    return " ".join(f"{values[name]:>{sign}{width}.1f}" for name, width in WIDTHS.items())


def length_table(stats: SentenceStats, test_set: TestSet) -> LengthTable:
    """Return the scores of a system by source length."""
    return table([count(line.source) for line in test_set.rows], stats)


def method_notes(signatures: Mapping[str, str], test: str, resamples: int, seed: int) -> tuple[str, ...]:
    """Return how scores were computed: sacrebleu's signatures, the bootstrap, and the test, if there was one.

    With the defaults, every line has less than 80 columns.
    """
    tests = {"randomisation": f"approximate randomisation, {TRIALS:,} trials", "bootstrap": "paired bootstrap"}
    return (
        *(f"{METRICS[name] + ':':<6}{text}" for name, text in signatures.items()),
        "all scores are of NFC text; lower TER is better",
        *([f"intervals: bootstrap, {resamples:,} resamples, seed {seed}"] if resamples else []),
        *([f"p: {tests[test]}, seed {seed}"] if test else []),
    )
