"""`heedful readout`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from heedful.cli.align import gold_links
from heedful.cli.decoding import naming_options, opened, refuse_wrong_way
from heedful.cli.options import (
    BatchTokens,
    Columns,
    Device,
    Format,
    Json,
    Model,
    PairFiles,
    Source,
    Target,
    Threads,
    pair_files,
    pair_rows,
    print_json,
    say,
)
from heedful.data.subsample import spread, thinned
from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.align import Gold, Links, OneWay
    from heedful.observe import Evidence, Measured
    from heedful.readout import Readout
    from heedful.translator import Translator

__all__ = ["readout"]

ROWS = 10  # of the best that are printed
LEARNED = 100_000  # pairs besides those that are read, at most, which the statistical aligner learns from
GOLD = "gold links"  # whose links they are: people's
FEWEST = 20  # pairs with links, below which a choice between hundreds of read-outs is chance
PLAINEST = "each word to the one that it looks at most, none to </s>"  # what makes them, if nothing else is said
POINT = 0.01  # of an error rate, by which a choice made without gold links has to be better at least
LESS = 1e-9  # of an error rate: less than this is a tie
COLUMNS = (
    ("layer", 5),
    ("heads", 10),
    ("step", 4),
    ("norms", 5),
    ("end", 4),
    ("marks", 5),
    ("even", 4),
    ("threshold", 9),
)
WIDE = sum(wide + 1 for _, wide in COLUMNS) - 1


class _Known(NamedTuple):
    """The pairs that read-outs are tried on, and the links they are held to; `name` says whose they are."""

    sources: list[str]
    targets: list[str]
    sure: list[Links]
    possible: list[Links]
    name: str
    reverse: list[OneWay] | None = None


def readout(
    model: Model,
    pairs: PairFiles = None,
    *,
    gold: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Links that people made, as heedful align takes them."),
    ] = None,
    gold_base: Annotated[int, typer.Option(metavar="0|1", help="What the gold file counts words from.")] = 0,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Leave out gold links outside of their sentences, and say how many.")
    ] = False,
    reverse: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="A model for the other direction.", show_default=False)
    ] = None,
    most: Annotated[
        int, typer.Option(min=2, metavar="N", help="Pairs that are read at most, from all over PAIRS.")
    ] = 1000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the table, and save nothing.")] = False,
    source: Source = None,
    target: Target = None,
    columns: Columns = "",
    format_: Format = "",
    device: Device = "auto",
    threads: Threads = 0,
    batch_tokens: BatchTokens = 4096,
    json: Json = False,
) -> None:
    """Find out how links are best read from a model's weights, and save that in its folder as readout.json.

    Tried are all layers and heads, the step at which a word is said to look, weights as they are or by the length of
    what they let through, and what makes a link of them. What counts is how well the links agree with gold links;
    without --gold with those of a --reverse model, by its own read-out; without either with those of the statistical
    aligner, which learns from all PAIRS and wants many. Every other pair is held out: the choice is made on one half,
    and measured on both. A readout.json that is there is replaced only by a better one, and no choice is saved that
    was made on fewer than 20 pairs with links. One made without --gold has to be clearly better on the half that it
    was not made on: by two standard errors of the difference, and a point at least.

    Up to 500 of the sources are translated, too, to measure the alarms that the weights raise: how often for wrong
    translations, and how often for right ones. That is saved with the read-out, and alarms that are near chance for
    this model are not shown any more.
    """
    if gold is None and (gold_base or lenient):
        raise ConfigError("--gold-base and --lenient are about gold links; they go with --gold")
    with naming_options():
        translator = opened(model, None, device, threads)
        other = None if reverse is None else opened(reverse, None, device, threads)
        rows = pair_rows(pair_files(pairs, source, target, columns, format_))
        read = list(rows) if gold else spread(thinned(rows, most + LEARNED), most)
        refuse_wrong_way(model, translator, read, columns)
        held = None if gold is None else gold_links(gold, read, gold_base, lenient)
        known = _known(read, most, translator, held, (reverse, other))
        found = _search(translator, known, batch_tokens)
        file = _folder(model) / "readout.json"
        why_not = found.why_not() or ("--dry-run" if dry_run else "")
        kept = _kept(translator, known, found, batch_tokens)
        if not dry_run and (not why_not or kept.alarms is not None):
            from heedful.folder import write_readout

            write_readout(file.parent, kept)
    rates = kept.alarms
    if json:
        record = {"saved": None if why_not else str(file), "why_not_saved": why_not}
        print_json({**found.plain(), "alarms": None if rates is None else rates.plain(), **record})
    else:
        print(found.table())
        if rates is not None:
            print("\n".join(["", "alarms of this read-out:", *rates.lines()]))
    was = _own(translator)
    if why_not:
        written = "" if dry_run or rates is None else "; how often its alarms are raised is saved there"
        say(f"{file}: {'no other read-out' if written else 'not'} written ({why_not}){written}")
    elif not json or was:
        say(
            f"saved in {file}"
            + (f"; it was: {_whole(was)} ({was.chosen or 'nothing says on what it was chosen'})" if was else "")
        )


class _Found(NamedTuple):
    """What was found: read-outs, best first; those that everybody knows by their names; and in words, what counted.

    `best` and `before` are what would be saved and what is there, each as it is used: joined, if it is to be.
    `margin` is by how much a choice made without gold links has to be better on the pairs held out.
    """

    rows: list[Measured]
    named: dict[str, Measured]
    joined: list[Measured]
    measure: str
    halves: tuple[int, int]
    best: Measured
    before: Measured | None
    linked: int
    margin: float = 0.0

    def why_not(self) -> str:
        """Return why the best read-out is not to be saved, or nothing."""
        if self.linked < FEWEST:
            pairs = f"{self.linked} pair{'s' * (self.linked != 1)}"
            return f"{pairs} with links: too few to choose by; give {FEWEST} at least, better some hundred"
        best, before, usual = self.best, self.before, self.named["usual"]
        if before is None and self.rows[0].held_out > usual.held_out + LESS:
            return (
                "on the pairs that it was not chosen on, the best makes more errors than the usual read-out, which "
                f"needs no file: {100 * self.rows[0].held_out:.1f} % and {100 * usual.held_out:.1f} %; give more pairs"
            )
        if before is not None and best.rate >= before.rate - LESS:
            rate = f"{100 * before.rate:.1f} %"
            return f"nothing is better than the read-out there is, {rate}; remove the file to choose anew"
        if before is not None and best.held_out > before.held_out + LESS:
            return (
                "the best makes more errors than the read-out there is on the pairs that it was not chosen on, "
                f"{100 * best.held_out:.1f} % and {100 * before.held_out:.1f} %; give more pairs, or remove the file"
            )
        name, base = ("usual read-out", usual) if before is None else ("read-out there is", before)
        if self.margin and base.held_out - best.held_out <= self.margin:
            return (
                "without gold links, only a choice that is clearly better is kept: on the pairs that it was not chosen "
                f"on, by two standard errors of the difference and a point at least, here {100 * self.margin:.1f} "
                f"points; the best has {100 * best.held_out:.1f} %, the {name} {100 * base.held_out:.1f} %; "
                "give more pairs"
            )
        return ""

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "measure": self.measure,
            "pairs": {"chosen_on": self.halves[0], "held_out": self.halves[1]},
            "best": [_plain(row) for row in self.rows],
            **{name: _plain(row) for name, row in self.named.items()},
            "symmetries": [_plain(row) for row in self.joined],
        }

    def table(self) -> str:
        """Return the table that people read."""
        titles = " ".join(f"{name:<{wide}}" for name, wide in COLUMNS)
        shown = [*((row, "") for row in self.rows[:ROWS]), *((row, name) for name, row in self.named.items())]
        lines = [
            f"{self.measure}, in %; less is better",
            f"chosen on {self.halves[0]:,} pairs, held to {self.halves[1]:,} others",
            "",
            f"{titles} {'chosen on':>9} {'others':>7}",
            *(f"{_cells(row.readout)} {_rates(row)}  {name}".rstrip() for row, name in shown),
        ]
        if self.joined:
            lines += ["", f"{'joined with the other direction':<{WIDE}} {'chosen on':>9} {'others':>7}"]
            lines += [f"{row.readout.symmetry:<{WIDE}} {_rates(row)}" for row in self.joined]
        return "\n".join([*lines, "", self._choice()])

    def _choice(self) -> str:
        """Return what links are read by from now on, or would be but for --dry-run."""
        if not self.why_not():
            return _whole(self.rows[0].readout)
        if "up to now" in self.named:
            return f"the read-out that is there stays: {_whole(self.named['up to now'].readout)}"
        return f"the usual read-out stays: {_whole(self.named['usual'].readout)}"


def _own(translator: Translator) -> Readout | None:
    """Return the read-out that was chosen for a model, or written by hand; not the usual one with measured alarms."""
    own = translator.parts.readout
    return None if own is None or own.is_usual(translator.config.model) else own


def _kept(translator: Translator, known: _Known, found: _Found, batch_tokens: int) -> Readout:
    """Return the read-out that the model has from now on, with its alarms measured where there are pairs enough."""
    from heedful.translator.alarm_rates import measure_alarms

    stays = _own(translator) or found.named["usual"].readout
    kept = stays if found.why_not() else found.rows[0].readout
    pairs = list(zip(known.sources, known.targets, strict=True))
    return replace(kept, alarms=measure_alarms(translator, pairs, kept, batch_tokens))


def _whole(readout: Readout) -> str:
    """Return which weights are read, and what makes links of them."""
    return f"{readout}; links: {', '.join(readout.rules) or PLAINEST}"


def _plain(row: Measured) -> dict[str, Any]:
    return {**row.readout.plain(), "rate": round(row.rate, 5), "held_out": round(row.held_out, 5)}


def _rates(row: Measured) -> str:
    return f"{100 * row.rate:>9.1f} {100 * row.held_out:>7.1f}"


def _cells(readout: Readout) -> str:
    layer = "mean" if readout.layer is None else str(readout.layer)
    heads = ",".join(map(str, readout.heads)) or "mean"
    norms, even = ("yes" if flag else "no" for flag in (readout.norms, readout.even))
    values = (layer, heads, readout.step, norms, readout.end, readout.marks, even, f"{readout.threshold:g}")
    return " ".join(f"{value:<{wide}}" for value, (_, wide) in zip(values, COLUMNS, strict=True))


def _known(
    rows: Sequence[tuple[str, str]],
    most: int,
    translator: Translator,
    gold: Gold | None,
    reverse: tuple[Path | None, Translator | None],
) -> _Known:
    """Return those of the first `most` pairs that can be read, with the links that are taken for right."""
    from heedful.align import align_pairs
    from heedful.align.readout import one_way
    from heedful.translator.aligning import check_reverse

    name, other = reverse
    whole = [i for i, (x, y) in enumerate(rows[:most]) if x and y and not translator.too_long(x, y)]
    if other is not None:
        whole = [i for i in whole if not other.too_long(*reversed(rows[i]))]
    if len(whole) < 2:
        raise DataError(f"{len(whole)} of {len(rows)} pairs can be read; a read-out is chosen on two at least")
    if left := len(rows[:most]) - len(whole):
        say(f"{left:,} pairs with an empty side, or too long for the model, are left out")
    sources, targets = ([rows[i][side] for i in whole] for side in (0, 1))
    if other is not None:
        check_reverse(translator, other, sources, targets)
    back = None if other is None else [one_way(one).turned() for one in other.align(targets, sources)]
    if gold is not None:
        sure, possible = ([side[i] for i in whole] for side in (gold.sure, gold.possible))
        return _Known(sources, targets, sure, possible, GOLD, back)
    if back is not None:
        taught = [one.links for one in back]
        return _Known(sources, targets, taught, taught, f"the links of {Path(str(name)).name}")
    taught = align_pairs(sources, targets, extra=rows[most:])
    return _Known(sources, targets, taught, taught, "the statistical aligner's links")


def _search(translator: Translator, known: _Known, batch_tokens: int) -> _Found:
    """Try all read-outs; the best is told how it was chosen."""
    from heedful.align import standard_error
    from heedful.observe import choose_readout, choose_symmetry, measured
    from heedful.readout import Readout
    from heedful.translator.aligning import evidence

    seen: Evidence = evidence(translator, known.sources, known.targets, batch_tokens)
    judge = seen.judge(known.sure, known.possible)
    rows = choose_readout(seen, judge)
    config, own = translator.config.model, _own(translator)
    known_by = {"naive": Readout.naive(config), "usual": Readout.usual(config)} | ({"up to now": own} if own else {})
    named = {name: measured(seen, judge, one) for name, one in known_by.items()}
    joined, best, before = [], rows[0], named.get("up to now")
    if known.reverse is not None:
        joined = choose_symmetry(seen, known.reverse, known.sure, known.possible, best.readout)
        best = joined[0]
        if own:
            all_ways = choose_symmetry(seen, known.reverse, known.sure, known.possible, own)
            before = next(one for one in all_ways if one.readout.symmetry == own.symmetry)
    n = len(known.sources)
    halves = ((n + 1) // 2, n // 2)
    told = (
        f"error rate against {known.name}: {best.rate:.3f} on {halves[0]:,} pairs that it was chosen on, "
        f"{best.held_out:.3f} on {halves[1]:,} others"
    )
    rows[0] = rows[0]._replace(readout=replace(best.readout, chosen=told))
    measure = f"alignment error rate against {known.name}"
    linked, margin = sum(map(bool, known.possible)), 0.0
    if known.name != GOLD:
        found, base = (seen.links(one)[1::2] for one in (best.readout, own or known_by["usual"]))
        margin = max(POINT, 2 * standard_error(found, base, known.sure[1::2], known.possible[1::2]))
    return _Found(rows, named, joined, measure, halves, best, before, linked, margin)


def _folder(model: Path) -> Path:
    from heedful.interop import HUB, fetch

    return fetch(str(model)) if str(model).startswith(HUB) else model
