"""`heedful.evaluate`: the scores of a system on a test set, with intervals, by length, and against another system.

Of captions of images also by the number of objects, and with the pointing accuracy of attention.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import heedful
from heedful.data.captions import Region
from heedful.evaluation.systems import (
    AnySystem,
    CaptionImages,
    Pairs,
    ProgressBar,
    System,
    SystemOutput,
    TestSet,
    no_progress,
    run,
)
from heedful.metrics.scores import LengthRow, LengthTable, table
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

# Columns of the text tables.
WIDTHS = {"bleu": 6, "chrf": 6, "ter": 6, "cider": 8, "rouge": 8, "exact": 8, "pointing": 9}
MOST_OBJECTS = 12  # with a row of their own; images with more are one row
ENDS = (("95 % from", "low"), ("95 % to", "high"))


@dataclass(frozen=True)
class Evaluation:
    """The scores of a system, their 95 % intervals, and the differences from another system, by metric.

    `outputs` are those of the system, and of the other one if there is one. For a test set of images, `images` are
    they, and `by_objects` are the scores by the number of objects, if it is known.
    """

    scores: LengthTable
    intervals: Mapping[str, Interval]
    differences: Mapping[str, Difference]
    outputs: tuple[SystemOutput, ...]
    test: str
    resamples: int
    seed: int
    by_objects: LengthTable | None = None
    images: CaptionImages | None = None

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it."""
        ends = {"intervals": {name: list(ends) for name, ends in self.intervals.items()}} if self.intervals else {}
        drawn = {"resamples": self.resamples, "seed": self.seed}
        record = {"model": self.outputs[0].name, **self.scores.plain(), **self._captions(), **ends, **drawn}
        if self.differences:
            versus = {name: one.plain() for name, one in self.differences.items()}
            record["against"] = {"model": self.outputs[1].name, "test": self.test, **versus}
        return record

    def _captions(self) -> dict[str, Any]:
        """Return what only captions have, as JSON can hold it."""
        if self.images is None:
            return {}
        signatures = self.outputs[0].stats.signatures
        record: dict[str, Any] = {f"{name}_signature": signatures[name] for name in ("cider", "rouge")}
        if self.by_objects is not None:
            record["by_objects"] = [row.plain() for row in self.by_objects.rows]
        if (pointing := self.outputs[0].pointing) is not None:
            record["pointing_words"] = pointing.plain()
        return {**record, "bad_images": dict(self.images.bad)}

    def table(self) -> str:
        """Return the scores by source length as text, with the intervals below the last row.

        Those of captions are by the length of the references, and by the number of objects.
        """
        names = list(self.outputs[0].stats.counts)
        what, pairs = ("source words", "pairs") if self.images is None else ("caption words", "images")
        lines = [f"{what:<13}{pairs:>7} {_titles(names)}"]
        for label, row in [*((row.label, row) for row in self.scores.rows), ("all", self.scores.total)]:
            lines.append(_row(label, row, names))
        for label, end in ENDS if self.intervals else ():
            lines.append(_line(label, {name: getattr(one, end) for name, one in self.intervals.items()}))
        if self.by_objects is not None:
            lines += ["", f"{'objects':<13}{pairs:>7} {_titles(names)}"]
            lines += [_row(row.label, row, names) for row in self.by_objects.rows]
        if (pointing := self.outputs[0].pointing) is not None:
            lines += ["", pointing.text()]
        return "\n".join(lines)

    def notes(self) -> tuple[str, ...]:
        """Return how the scores were computed, a line each."""
        stats, readout = self.outputs[0].stats, self.outputs[0].readout
        notes = method_notes(stats.signatures, self.test if self.differences else "", self.resamples, self.seed)
        if "cider" in stats.counts and len(stats) == 1:
            notes += ("CIDEr-D of one image is 0: every word is in the references of all images",)
        if readout is not None:
            notes += (f"pointing: the largest weight of a reference's word; {readout}",)
        return notes


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
    batch_tokens: int = 0,
    tokenize: str = "",
    progress: ProgressBar = no_progress,
    images: str | Path | None = None,
    regions: Sequence[Region] | str | Path | None = None,
) -> Evaluation:
    """Translate test sentences and score the translations: BLEU, chrF, TER and exact match, by source length.

    `system` is a translator, a model's folder, or a list of translations, one for each pair. `pairs` are (source,
    reference) or (source, reference, reference, …); pairs with an empty side are not measured. Each source is
    translated as one sentence. `against` is another system; `test` is the significance test of the difference,
    "randomisation" or "bootstrap". `resamples` are those of the bootstrap, for the intervals; 0 leaves them out.
    `decoding` has the decoding settings, such as `Decoding(beam=5)`. `tokenize` is the tokenizer of BLEU: one of
    `heedful.metrics.TOKENIZERS`, or by the references. `progress` makes progress bars (`ProgressBar`).

    With `images`, a folder or an archive of pictures, the model captions them: `pairs` are (name of an image, caption),
    and the references of an image are all its captions. The scores are BLEU, chrF, CIDEr-D, ROUGE-L and exact match,
    and with `regions`, gold boxes of words (`heedful.data.captions`) or a file of them, pointing accuracy.

    >>> pairs = [("eins zwei drei vier", "one two three four"), ("", "")]
    >>> evaluate(["one two three four", ""], pairs, resamples=0).scores.total.bleu
    100.0
    """
    check_test(test, resamples if against is not None else 1)
    test_set, how = TestSet.of(pairs, images, regions), decoding or heedful.Decoding()
    systems = [System.of(system)] + ([] if against is None else [System.of(against, default="the other system")])
    outputs = tuple(
        run(
            one,
            test_set,
            how,
            copy_unknown=copy_unknown,
            batch_tokens=batch_tokens,
            tokenize=tokenize,
            progress=progress,
        )
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
        object_table(first, test_set),
        test_set.images,
    )


def difference_table(title: str, differences: Mapping[str, Difference], names: tuple[str, str]) -> str:
    """Return the scores of two systems by metric, the difference with its interval, and the verdicts, as text.

    A system without a name is left out.
    """
    lines = [f"{title:<20} {_titles(differences)}"]
    for name, which in zip(names, ("first", "second"), strict=True):
        lines += [_line(name, {key: getattr(one, which) for key, one in differences.items()})] if name else []
    lines.append(_line("difference", {key: one.value for key, one in differences.items()}, "+"))
    for label, end in ENDS if all(one.interval for one in differences.values()) else ():
        lines.append(_line(label, {key: getattr(one.interval, end) for key, one in differences.items()}, "+"))
    width = max([7, *(len(METRICS[key]) + 1 for key in differences if key != "exact")])
    verdicts = (f"{METRICS[key].removesuffix(' %'):<{width}}{one}" for key, one in differences.items())
    return "\n".join([*lines, "", *verdicts])


def _titles(names: Iterable[str]) -> str:
    return " ".join(f"{METRICS[name]:>{width}}" for name, width in WIDTHS.items() if name in names)


def _row(label: str, row: LengthRow, names: Iterable[str]) -> str:
    return f"{label:<12} {row.pairs:>7,} {_cells(dict.fromkeys(names) | row.plain())}"


def _line(label: str, values: Mapping[str, Any], sign: str = "") -> str:
    return f"{label:<20} {_cells(values, sign)}"


def _cells(values: Mapping[str, Any], sign: str = "") -> str:
    """Return the scores as columns; a dash for one that is not known."""
    return " ".join(
        f"{'–':>{width}}" if values[name] is None else f"{values[name]:>{sign}{width}.1f}"
        for name, width in WIDTHS.items()
        if name in values
    )


def length_table(stats: SentenceStats, test_set: TestSet) -> LengthTable:
    """Return the scores of a system by source length; of captions, by the mean length of an image's references."""
    if test_set.images is None:
        return table([count(line.source) for line in test_set.rows], stats)
    return table([round(sum(map(count, row.references)) / len(row.references)) for row in test_set.rows], stats)


def object_table(stats: SentenceStats, test_set: TestSet) -> LengthTable | None:
    """Return the scores of captions by the number of objects; None if it is not known.

    Images without gold regions are in no row: they may show any number of objects.
    """
    if test_set.images is None or not test_set.images.objects:
        return None
    numbers = [test_set.images.objects.get(row.source) for row in test_set.rows]
    known = [number for number in numbers if number is not None]
    return table(numbers, stats, range(min(known), min(max(known), MOST_OBJECTS) + 2)) if known else None


def method_notes(signatures: Mapping[str, str], test: str, resamples: int, seed: int) -> tuple[str, ...]:
    """Return how scores were computed: sacrebleu's signatures, the bootstrap, and the test, if there was one.

    With the defaults, every line has less than 80 columns.
    """
    tests = {"randomisation": f"approximate randomisation, {TRIALS:,} trials", "bootstrap": "paired bootstrap"}
    width = max((len(METRICS[name]) + 2 for name in signatures), default=0)
    return (
        *(f"{METRICS[name] + ':':<{width}}{text}" for name, text in signatures.items()),
        "all scores are of NFC text; "
        + ("CIDEr-D and ROUGE-L are times 100" if "cider" in signatures else "lower TER is better"),
        *([f"intervals: bootstrap, {resamples:,} resamples, seed {seed}"] if resamples else []),
        *([f"p: {tests[test]}, seed {seed}"] if test else []),
    )
