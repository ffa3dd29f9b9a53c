"""Selecting a read-out: every layer, head, step and link rule is tried, and the one with the lowest error rate is kept.

Error rates are measured against reference links. For a model of images they are pointing errors: the share of words
whose largest weight is outside of their gold region. Every other pair is held out: the selection is made on one half,
and measured on both. This file works on weights that were read already; `heedful.select_readout` reads them from a
model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.alignment.gold import score, standard_error
from heedful.alignment.links import Links, WordCells, between_words, matrix_links, punctuation
from heedful.alignment.symmetrize import DirectedLinks
from heedful.errors import ConfigError, DataError
from heedful.metrics.pointing import GoldWord, PointingTable, points_right
from heedful.trace.alarms import AlarmRates
from heedful.trace.readout import BY_RULE, ENDS, MARKS, STEPS, SYMMETRIES, Readout, Weights, weighted
from heedful.trace.trace import Text

THRESHOLDS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
GROWN = 4  # places (layer, step, norms) whose heads are combined
TIE = 1e-9  # error rates that differ by less are equal
GOLD = "gold links"  # the name of manual reference links
FEWEST = 20  # pairs with links, below which a selection from hundreds of read-outs is chance
ROWS = 10  # read-outs in the text table
NAMES, WIDTHS = ("layer", "heads", "step", "norms", "end", "marks", "even", "threshold"), (5, 10, 4, 5, 4, 5, 4, 9)
COLUMNS = tuple(zip(NAMES, WIDTHS, strict=True))
POINT = 0.01  # of an error rate: the least gain of a selection made without gold links

Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]
Place = tuple[int | None, str, bool]  # layer, step, norms


class PairWeights(NamedTuple):
    """The weights between the words of one pair, read in every way.

    `weights` (2, 2, L, H, target words, source words + 1) are those of both steps, raw and by norms, with `</s>` last.
    `source` and `target` are flags of the words that are punctuation.
    """

    weights: Weights
    source: Flags
    target: Flags

    @classmethod
    def of(
        cls, source: Text, target: Text, weights: Weights | None, after: Weights | None, norms: Weights | None
    ) -> PairWeights:
        """Return weights between words from weights between tokens, (L, H, T, S); the others are as in `Trace`."""
        if weights is None or after is None or norms is None:
            raise ConfigError("this model has no attention, so there is no read-out to select")
        following = np.concatenate([weights[:, :, 1:], after[:, :, None]], axis=2)
        readings = np.stack([[step, weighted(step, norms)] for step in (weights, following)])
        return cls(between_words(readings, source, target), punctuation(source.written), punctuation(target.written))


class GoldCells(NamedTuple):
    """Reference links as flags of cells: sure, and possible (which includes sure). `sure_links` counts by half."""

    sure: Flags
    possible: Flags
    sure_links: Counts


class WeightTable:
    """The weights of many pairs, flat, so that read-outs are compared quickly.  (steps, raw or by norms, L, H, cells).

    Pairs are in two halves, every other one in the second: one half to select on, one to measure the selection on.
    """

    def __init__(self, pairs: Sequence[PairWeights]) -> None:
        self.cells = WordCells([(pair.source, pair.target) for pair in pairs])
        sizes = np.diff(self.cells.pair_starts)
        if not sizes.sum():
            raise DataError("there is nothing to select a read-out on: no pairs with words")
        flat = [pair.weights.reshape(*pair.weights.shape[:4], -1) for pair in pairs]
        self.weights: Weights = np.concatenate(flat, axis=-1)
        self.half = np.repeat(np.arange(len(sizes)) % 2, sizes)

    @property
    def layers(self) -> int:
        """The number of layers."""
        return int(self.weights.shape[2])

    @property
    def heads(self) -> int:
        """The number of heads of each layer."""
        return int(self.weights.shape[3])

    def gold_cells(self, sure: Sequence[Links], possible: Sequence[Links] | None = None) -> GoldCells:
        """Return reference links as flags, for `rates`."""
        flags = []
        for side in (sure, sure if possible is None else possible):
            flat = np.zeros(len(self.half), dtype=np.bool_)
            matrices = self.cells.split(flat)  # views of `flat`
            for number, (links, matrix) in enumerate(zip(side, matrices, strict=True), 1):
                T, S = matrix.shape
                for s, t in links:
                    if not (s < S - 1 and t < T):
                        words = f"{S - 1} source and {T} target words"
                        raise DataError(f"pair {number}: the link {s}-{t} is outside of its {words}")
                    matrix[t, s] = True
            flags.append(flat)
        counts = np.bincount(self.half[flags[0]], minlength=2)
        return GoldCells(flags[0], flags[0] | flags[1], counts)

    def mixed(self, readout: Readout) -> Weights:
        """Return the weights of all cells by a read-out's layer, heads, step and norms.  (cells,)."""
        chosen = self.weights[STEPS.index(readout.step), int(readout.norms)]
        return Readout(readout.layer, readout.heads).mix(chosen[..., None])[:, 0]

    def rates(
        self, mixed: Weights, readout: Readout, thresholds: Sequence[float], gold: GoldCells
    ) -> NDArray[np.float64]:
        """Return the alignment error rates of both halves at each threshold.  (2, thresholds)."""
        shares = self.cells.shares(mixed, readout)
        near = np.nonzero(shares >= min(thresholds))[0]
        shares, half = shares[near], self.half[near]
        counts = np.zeros((3, 2, len(thresholds)), dtype=np.int64)  # links, sure links, possible links
        for i, threshold in enumerate(thresholds):
            linked = shares >= threshold
            for row, which in zip(
                counts, (linked, linked & gold.sure[near], linked & gold.possible[near]), strict=True
            ):
                row[:, i] = np.bincount(half[which], minlength=2)
        links, right, allowed = counts
        size = links + gold.sure_links[:, None]
        rates: NDArray[np.float64] = 1 - np.where(size > 0, (right + allowed) / np.maximum(size, 1), 1.0)
        return rates

    def rate(self, mixed: Weights, readout: Readout, gold: GoldCells) -> float:
        """Return the alignment error rate of all pairs."""
        shares = self.cells.shares(mixed, readout)
        linked = (shares > 0) & (shares >= readout.threshold)
        right, allowed = int((linked & gold.sure).sum()), int((linked & gold.possible).sum())
        size = int(linked.sum()) + int(gold.sure_links.sum())
        return 1 - (right + allowed) / size if size else 0.0

    def share(self, mixed: Weights, readout: Readout, gold: GoldCells) -> float:
        """Return the part of the weights that is on sure links, as the read-out counts them, without `</s>`."""
        counted = self.cells.counted(mixed, readout)
        counted[self.cells.row_ends] = 0
        return float(counted[gold.sure].sum() / max(float(counted.sum()), 1e-9))

    def points_right(self, mixed: Weights, gold: Sequence[Sequence[GoldWord]]) -> Flags:
        """Return whether each gold word's largest weight, without `</s>`, is on a right region.  (gold words,)."""
        flags = [
            right
            for weights, words in zip(self.cells.split(mixed), gold, strict=True)
            for right in points_right(weights[:, :-1], words)
        ]
        return np.array(flags, dtype=np.bool_)

    def links(self, readout: Readout) -> list[Links]:
        """Return the links of each pair."""
        return list(map(matrix_links, self.cells.split(self.cells.linked(self.mixed(readout), readout))))

    def directed(self, readout: Readout) -> list[DirectedLinks]:
        """Return the links of each pair with the weights that were compared."""
        counted = self.cells.split(self.cells.counted(self.mixed(readout), readout))
        return [
            DirectedLinks(links, weights[:, :-1], readout.threshold)
            for links, weights in zip(self.links(readout), counted, strict=True)
        ]


class MeasuredReadout(NamedTuple):
    """A read-out with its error rate on the half that it was selected on, and on the held-out half."""

    readout: Readout
    rate: float
    held_out: float

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it."""
        return {**self.readout.plain(), "rate": round(self.rate, 5), "held_out": round(self.held_out, 5)}

    def rates(self, accuracy: bool = False) -> str:
        """Return the two error rates in per cent, as columns of a table; with `accuracy`, what is left to 100."""
        return " ".join(
            f"{100 * (1 - rate if accuracy else rate):>{width}.1f}"
            for rate, width in ((self.rate, 9), (self.held_out, 8))
        )

    def cells(self) -> tuple[str, ...]:
        """Return the read-out as the cells of a table, one for each of COLUMNS."""
        readout = self.readout
        layer = "mean" if readout.layer is None else str(readout.layer)
        heads = ",".join(map(str, readout.heads)) or "mean"
        norms, even = ("yes" if flag else "no" for flag in (readout.norms, readout.even))
        return layer, heads, readout.step, norms, readout.end, readout.marks, even, f"{readout.threshold:g}"


def measure_readout(table: WeightTable, gold: GoldCells, readout: Readout) -> MeasuredReadout:
    """Measure one read-out, in one direction."""
    rates = table.rates(table.mixed(readout), readout, [readout.threshold], gold)
    return MeasuredReadout(readout, *rates[:, 0].tolist())


def rank_readouts(table: WeightTable, gold: GoldCells) -> list[MeasuredReadout]:
    """Try all read-outs on the first half and return them, best first; of equals, the simpler one is first.

    For each layer, step, and with or without norms: the mean of the heads and each head; for the best places, also
    combinations of heads, grown one by one while the error rate falls. Each has the link rule (`end`, `marks`, `even`,
    `threshold`) that is best for it.
    """
    return _search(table, lambda readout: _with_best_rule(table, gold, readout))


def rank_heads(table: WeightTable, gold: GoldCells, rule: Readout) -> list[MeasuredReadout]:
    """Try all layers, heads and steps with the link rule of `rule`, raw weights, by the errors on all pairs.

    The rates of both halves are those of all. Of the best with the same rate, the one with the most weight on links is
    first.
    """

    def measure(readout: Readout) -> MeasuredReadout:
        tried = replace(rule, layer=readout.layer, heads=readout.heads, step=readout.step)
        rate = table.rate(table.mixed(tried), tried, gold)
        return MeasuredReadout(tried, rate, rate)

    ranked = _search(table, measure, norms=False)
    tied = [one for one in ranked if one.rate <= ranked[0].rate + TIE]
    sharpest = max(tied, key=lambda one: table.share(table.mixed(one.readout), one.readout, gold))
    return [sharpest, *(one for one in ranked if one is not sharpest)]


def rank_pointing(table: WeightTable, gold: Sequence[Sequence[GoldWord]]) -> list[MeasuredReadout]:
    """Try all read-outs as `rank_readouts` does, by pointing errors; the link rule changes nothing there."""
    return _search(table, lambda readout: measure_pointing(table, gold, readout))


def measure_pointing(table: WeightTable, gold: Sequence[Sequence[GoldWord]], readout: Readout) -> MeasuredReadout:
    """Measure the pointing errors of one read-out; `gold` are the words of each pair that have gold regions."""
    right = table.points_right(table.mixed(readout), gold)
    half = np.repeat(np.arange(len(gold)) % 2, [len(words) for words in gold])
    rates = (1 - float(right[half == which].mean()) if (half == which).any() else 0.0 for which in (0, 1))
    return MeasuredReadout(readout, *rates)


def _search(
    table: WeightTable, measure: Callable[[Readout], MeasuredReadout], norms: bool = True
) -> list[MeasuredReadout]:
    """Measure the read-outs of every place, and combinations of heads of the best ones; return them, best first."""
    tried = []
    best: dict[Place, MeasuredReadout] = {}
    for place, heads in _places(table):
        if place[2] and not norms:
            continue
        measured = measure(Readout(place[0], heads, place[1], place[2]))
        tried.append(measured)
        if len(heads) == 1 and (place not in best or measured.rate < best[place].rate):
            best[place] = measured
    if table.heads > 2:
        for place in sorted(best, key=lambda place: best[place].rate)[:GROWN]:
            tried += _grow(table.heads, measure, best[place])
    return sorted(tried, key=lambda measured: measured.rate)


def rank_symmetries(
    table: WeightTable,
    reverse: Sequence[DirectedLinks],
    sure: Sequence[Links],
    possible: Sequence[Links],
    readout: Readout,
) -> list[MeasuredReadout]:
    """Combine a read-out's links with those of the other direction in every way, best first; `reverse` is flipped."""
    forward = table.directed(readout)
    tried = []
    for how in SYMMETRIES:
        links = [one.combined(other, how) for one, other in zip(forward, reverse, strict=True)]
        halves = (_rate(links[half::2], sure[half::2], possible[half::2]) for half in (0, 1))
        tried.append(MeasuredReadout(replace(readout, symmetry=how), *halves))
    return sorted(tried, key=lambda measured: measured.rate)


def _rate(links: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links]) -> float:
    return score(links, sure, possible).error_rate if links else 0.0


def _places(table: WeightTable) -> Iterator[tuple[Place, tuple[int, ...]]]:
    """Yield layers, steps, norms, and all heads or one; the simpler first."""
    single = [(head,) for head in range(1, table.heads + 1)] if table.heads > 1 else []
    for norms in (False, True):
        for step in STEPS:
            for layer in [*range(table.layers, 0, -1), *([None] if table.layers > 1 else [])]:
                for heads in [(), *(single if layer is not None else [])]:
                    yield (layer, step, norms), heads


def _with_best_rule(table: WeightTable, gold: GoldCells, readout: Readout) -> MeasuredReadout:
    """Return a read-out with the link rule that is best for its weights."""
    mixed, best = table.mixed(readout), None
    for even, marks, end in product((False, True), MARKS, ENDS):
        rule = replace(readout, end=end, marks=marks, even=even)
        rates = table.rates(mixed, rule, THRESHOLDS, gold)
        at = int(np.argmin(rates[0]))
        if best is None or rates[0, at] < best.rate - TIE:
            best = MeasuredReadout(replace(rule, threshold=THRESHOLDS[at]), *rates[:, at].tolist())
    assert best is not None
    return best


def _grow(heads: int, measure: Callable[[Readout], MeasuredReadout], best: MeasuredReadout) -> list[MeasuredReadout]:
    """Add heads of the same layer to the best one, each time the one that helps most, as long as one helps."""
    every = []
    while len(best.readout.heads) < heads:
        others = [h for h in range(1, heads + 1) if h not in best.readout.heads]
        tried = [measure(replace(best.readout, heads=tuple(sorted((*best.readout.heads, head))))) for head in others]
        better = min(tried, key=lambda measured: measured.rate)
        every += tried
        if better.rate >= best.rate - TIE:
            break
        best = better
    return every


class ReferenceLinks(NamedTuple):
    """The links that read-outs are measured against, and their name: GOLD, or another.

    `reverse` are the links of a model for the other direction, flipped, if they are to be combined with.
    """

    sure: list[Links]
    possible: list[Links]
    name: str = GOLD
    reverse: list[DirectedLinks] | None = None


class StepPointing(NamedTuple):
    """The read-out of all heads, or the best one, at a step, and its pointing accuracy on the held-out half."""

    step: str
    weights: str
    measured: MeasuredReadout
    held_out: PointingTable

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it."""
        return {
            "step": self.step,
            "weights": self.weights,
            "readout": self.measured.readout.plain(),
            "pointing": round(1 - self.measured.rate, 5),
            "held_out": self.held_out.plain(),
        }


class ReadoutSelection(NamedTuple):
    """The result of a selection.

    `ranked` are all read-outs, best first. `named` has those to compare with: "naive", "usual", "by rule" if the
    default is chosen by rule, and "up to now", the read-out that the model has, if it has one of its own. `symmetries`
    are the ways to combine two directions, best first. `halves` counts the pairs selected on and held out, `linked`
    those with reference links, and `skipped` those left out: with an empty side, or too long. `best` and `before` are
    the new and the present read-out as they are used, combined if there is a reverse model. `margin` is the least gain
    on the held-out half. `alarms` are the alarm rates of `readout`, if they were measured.

    If error rates are pointing errors, `pointing` is the pointing accuracy of `selected`, the read-out to use, on the
    held-out half by kind of word; `kept` says why it is the one there is. `steps` has both steps to compare.
    """

    ranked: list[MeasuredReadout]
    named: dict[str, MeasuredReadout]
    symmetries: list[MeasuredReadout]
    measure: str
    halves: tuple[int, int]
    best: MeasuredReadout
    before: MeasuredReadout | None
    linked: int
    margin: float = 0.0
    skipped: int = 0
    alarms: AlarmRates | None = None
    pointing: PointingTable | None = None
    selected: Readout | None = None
    kept: str = ""
    steps: tuple[StepPointing, ...] = ()

    @property
    def present(self) -> Readout | None:
        """The model's own read-out before the selection; None if it had none."""
        return self.named["up to now"].readout if "up to now" in self.named else None

    @property
    def default(self) -> MeasuredReadout:
        """The read-out of the model without a file of its own: that by rule, or the usual one."""
        return self.named.get(BY_RULE, self.named["usual"])

    @property
    def default_name(self) -> str:
        """The name of that read-out in messages."""
        return "read-out by rule" if BY_RULE in self.named else "usual read-out"

    @property
    def readout(self) -> Readout:
        """The read-out to use from now on: the best one, or the one there is if the best is not clearly better."""
        if self.selected is not None:
            return replace(self.selected, alarms=self.alarms)
        present = self.present or self.default.readout
        return replace(present if self.why_not_saved() else self.ranked[0].readout, alarms=self.alarms)

    def why_not_saved(self) -> str:
        """Return why the best read-out should not replace the present one; "" if it should."""
        if self.linked < FEWEST:
            pairs, links = f"{self.linked} pair{'s' * (self.linked != 1)}", "gold regions" if self.pointing else "links"
            return f"{pairs} with {links} are too few to select by; give at least {FEWEST}, better several hundred"
        if self.pointing is not None:
            return self.kept
        best, before, usual = self.best, self.before, self.default
        if before is None and self.ranked[0].held_out > usual.held_out + TIE:
            return (
                f"on the held-out pairs, the best has a higher error rate than the {self.default_name}, which needs no "
                f"file: {100 * self.ranked[0].held_out:.1f} % and {100 * usual.held_out:.1f} %; give more pairs"
            )
        if before is not None and best.rate >= before.rate - TIE:
            rate = f"{100 * before.rate:.1f} %"
            return f"nothing is better than the present read-out, {rate}; remove the file to select again"
        if before is not None and best.held_out > before.held_out + TIE:
            return (
                "on the held-out pairs, the best has a higher error rate than the present read-out: "
                f"{100 * best.held_out:.1f} % and {100 * before.held_out:.1f} %; give more pairs, or remove the file"
            )
        name, base = (self.default_name, usual) if before is None else ("present read-out", before)
        if self.margin and base.held_out - best.held_out <= self.margin:
            return (
                "without gold links, a read-out has to be better on the held-out pairs by two standard errors of the "
                f"difference and at least one point, here {100 * self.margin:.1f} points; "
                f"the best has {100 * best.held_out:.1f} %, the {name} {100 * base.held_out:.1f} %; give more pairs"
            )
        return ""

    def table(self) -> str:
        """Return the best read-outs, best first, and the one to use, as text."""
        rows = [*((row, "") for row in self.ranked[:ROWS]), *((row, name) for name, row in self.named.items())]
        pointing = self.pointing is not None
        # Of a model of images, only columns that differ: many have one layer and one head, and captions few marks.
        shown = [i for i in range(len(COLUMNS)) if not pointing or len({row.cells()[i] for row, _ in rows}) > 1]

        def line(values: Sequence[str]) -> str:
            return " ".join(f"{values[i]:<{COLUMNS[i][1]}}" for i in shown)

        titles = line(NAMES)
        lines = [
            f"{self.measure}, in %; {'more' if pointing else 'less'} is better",
            f"selected on {self.halves[0]:,} {'captions' if pointing else 'pairs'}; {self.halves[1]:,} are held out",
            "",
            f"{titles} {'selection':>9} {'held out':>8}",
            *(f"{line(row.cells())} {row.rates(pointing)}  {name}".rstrip() for row, name in rows),
        ]
        if self.pointing is not None:
            wide = max(len(titles) - 5, *(len(_weights(one.weights, one.measured.readout)) for one in self.steps))
            kinds = "".join(f" {row.kind or 'other':>8}" for row in self.pointing.rows)
            lines += ["", f"{'step':<4} {'weights':<{wide}} {'selection':>9} {'held out':>8}{kinds}"]
            for step, label, row, by_kind in self.steps:
                each = "".join(f" {kind.accuracy:>8.1f}" for kind in by_kind.rows)
                lines.append(f"{step:<4} {_weights(label, row.readout):<{wide}} {row.rates(accuracy=True)}{each}")
            lines += ["", "the selected read-out on the held-out pairs, by kind of word", self.pointing.text()]
        if self.symmetries:
            wide = len(titles)
            lines += ["", f"{'combined with the other direction':<{wide}} {'selection':>9} {'held out':>8}"]
            lines += [f"{row.readout.symmetry:<{wide}} {row.rates()}" for row in self.symmetries]
        kept = f"the {'present read-out' if self.present else self.default_name} stays: "
        return "\n".join([*lines, "", (kept if self.why_not_saved() else "") + self.readout.describe()])

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it."""
        return {
            "measure": self.measure,
            "pairs": {"chosen_on": self.halves[0], "held_out": self.halves[1]},
            "best": [row.plain() for row in self.ranked],
            **{name: row.plain() for name, row in self.named.items()},
            "symmetries": [row.plain() for row in self.symmetries],
            "alarms": None if self.alarms is None else self.alarms.plain(),
            **self._pointing(),
        }

    def _pointing(self) -> dict[str, Any]:
        """Return what only a selection by gold regions has, as JSON can hold it."""
        if self.pointing is None:
            return {}
        steps = [row.plain() for row in self.steps]
        return {"steps": steps, "pointing": self.pointing.plain()}


def select(
    table: WeightTable, reference: ReferenceLinks, defaults: Mapping[str, Readout], present: Readout | None = None
) -> ReadoutSelection:
    """Try all read-outs on weights against reference links.

    `defaults` are the "naive" and the "usual" read-out of such models, and "by rule" that of an opened model; `present`
    is the model's own, if it has one.
    """
    sure, possible, name, reverse = reference
    gold = table.gold_cells(sure, possible)
    ranked = rank_readouts(table, gold)
    known = {**defaults, **({"up to now": present} if present else {})}
    named = {label: measure_readout(table, gold, readout) for label, readout in known.items()}
    symmetries, best, before = [], ranked[0], named.get("up to now")
    if reverse is not None:
        symmetries = rank_symmetries(table, reverse, sure, possible, best.readout)
        best = symmetries[0]
        if present:
            combined = rank_symmetries(table, reverse, sure, possible, present)
            before = next(one for one in combined if one.readout.symmetry == present.symmetry)
    halves = ((len(sure) + 1) // 2, len(sure) // 2)
    chosen = (
        f"error rate against {name}: {best.rate:.3f} on {halves[0]:,} pairs that it was selected on, "
        f"{best.held_out:.3f} on {halves[1]:,} held-out pairs"
    )
    ranked[0] = ranked[0]._replace(readout=replace(best.readout, chosen=chosen))
    margin = 0.0
    if name != GOLD:
        default = known.get(BY_RULE, known["usual"])
        links, base = (table.links(readout)[1::2] for readout in (best.readout, present or default))
        margin = max(POINT, 2 * standard_error(links, base, sure[1::2], possible[1::2]))
        # A default by rule is a choice without gold links, too.
        margin = 0.0 if present is None and BY_RULE in known else margin
    measure = f"alignment error rate against {name}"
    linked = sum(map(bool, possible))
    return ReadoutSelection(ranked, named, symmetries, measure, halves, best, before, linked, margin)


def select_pointing(
    table: WeightTable,
    gold: Sequence[Sequence[GoldWord]],
    defaults: Mapping[str, Readout],
    present: Readout | None = None,
) -> ReadoutSelection:
    """Try all read-outs of a model of images by pointing errors; `gold` are the words of each pair with gold regions.

    Layer, heads, step and norms are those with the fewest errors. The link rule, which says what words have no region
    and how many regions a word has, is the one with the lowest alignment error rate against all gold regions.
    """
    held_out = [words if i % 2 else () for i, words in enumerate(gold)]
    if not any(held_out) or not any(gold[::2]):
        raise DataError(
            "there is nothing to select a read-out on: one half of the captions has no word with a gold region inside "
            "its picture; give more captions with gold regions"
        )
    ranked = rank_pointing(table, gold)
    known = {**defaults, **({"up to now": present} if present else {})}
    named = {label: measure_pointing(table, gold, readout) for label, readout in known.items()}
    best, base = ranked[0], named["up to now" if present else "usual"]
    name = "present" if present else "usual"
    # Better than the read-out there is by more than chance, or else that one, with a better link rule if there is one.
    margin = max(POINT, 2 * _pointing_error(table, held_out, best.readout, base.readout))
    cells = table.gold_cells(
        [frozenset((region, one.word) for one in words for region in one.regions) for words in gold]
    )
    linked = sum(map(bool, gold))
    better = linked >= FEWEST and base.held_out - best.held_out > margin
    chosen = best if better else base
    rule = _with_best_rule(table, cells, chosen.readout)
    gain = measure_readout(table, cells, chosen.readout).held_out - rule.held_out
    kept = ""
    if not better and (linked < FEWEST or gain <= POINT):
        rule = rule._replace(readout=base.readout)
        kept = (
            f"kept: on the held-out captions, the new one is not better than the {name} one by {100 * margin:.1f} "
            f"points, {100 * (1 - best.held_out):.1f} % and {100 * (1 - base.held_out):.1f} %"
        )
    halves = ((len(gold) + 1) // 2, len(gold) // 2)
    steps = _by_step(table, ranked, held_out)
    each = ", ".join(
        f"{1 - row.measured.held_out:.3f} at the {row.step} step" for row in steps if row.weights == "best"
    )
    words = (
        f"pointing accuracy: {1 - chosen.rate:.3f} on {halves[0]:,} captions that it was selected on, "
        f"{1 - chosen.held_out:.3f} on {halves[1]:,} held-out captions; the best of each step, held out: {each}"
    )
    selected = replace(rule.readout, chosen=words)
    measure = "pointing accuracy: words whose largest weight is on their gold region"
    return ReadoutSelection(
        ranked,
        named,
        [],
        measure,
        halves,
        best,
        named.get("up to now"),
        linked,
        margin,
        pointing=_pointing_table(table, held_out, selected),
        selected=selected,
        kept=kept,
        steps=steps,
    )


def _weights(label: str, readout: Readout) -> str:
    """Return which weights a row of the table of steps has."""
    return f"{label}: {replace(readout, step='same')}"


def _by_step(
    table: WeightTable, ranked: Sequence[MeasuredReadout], held_out: Sequence[Sequence[GoldWord]]
) -> tuple[StepPointing, ...]:
    """Return for each step the mean of all heads, if there are several, and the best read-out."""
    rows = []
    for step in STEPS:
        at = [row for row in ranked if row.readout.step == step]
        means = [row for row in at if not row.readout.heads and not row.readout.norms]
        mean = next((row for row in means if row.readout.layer is None), means[0])
        for label, row in (("mean", mean), ("best", at[0])):
            if label == "best" or table.layers * table.heads > 1:
                rows.append(StepPointing(step, label, row, _pointing_table(table, held_out, row.readout)))
    return tuple(rows)


def _pointing_table(table: WeightTable, gold: Sequence[Sequence[GoldWord]], readout: Readout) -> PointingTable:
    right = table.points_right(table.mixed(readout), gold)
    return PointingTable.of([one for words in gold for one in words], right.tolist())


def _pointing_error(table: WeightTable, gold: Sequence[Sequence[GoldWord]], first: Readout, second: Readout) -> float:
    """Return the standard error of the difference of two pointing accuracies; the words of a caption go together."""
    one, other = (table.points_right(table.mixed(readout), gold).astype(np.float64) for readout in (first, second))
    captions = np.repeat(np.arange(len(gold)), [len(words) for words in gold])
    sizes = np.bincount(captions, minlength=len(gold))
    gains = np.bincount(captions, weights=one - other, minlength=len(gold))
    rest = gains - sizes * gains.sum() / sizes.sum()
    return float(np.sqrt((rest**2).sum()) / sizes.sum())
