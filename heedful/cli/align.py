"""`heedful align`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.options import (
    BatchTokens,
    Columns,
    Device,
    Format,
    Json,
    Notes,
    PairFiles,
    Source,
    Target,
    Threads,
    check_direction,
    name_options,
    open_model,
    pair_files,
)
from heedful.cli.output import log, print_json, progress_bar
from heedful.errors import ConfigError, DataError, choose

if TYPE_CHECKING:
    from heedful.alignment import AlignmentScores, Gold, Links
    from heedful.data import PairFile
    from heedful.translator import AlignedPairs, Translator

__all__ = ["align", "read_gold_file"]

Pairs = Sequence[tuple[str, str]]


def align(
    pairs: PairFiles = None,
    *,
    source: Source = None,
    target: Target = None,
    columns: Columns = "",
    format_: Format = "",
    method: Annotated[
        str | None,
        typer.Option(metavar="ibm|eflomal", help="The statistical aligner: our own, or the program eflomal [ibm]."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL",
            help="Read links from a model's attention: a model folder, or hf:ORG/NAME.",
            show_default=False,
        ),
    ] = None,
    reverse: Annotated[
        Path | None,
        typer.Option(metavar="MODEL", help="With --model: a model for the other direction.", show_default=False),
    ] = None,
    symmetry: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="How two directions are combined: grow-diag-final-and, grow-diag, intersection, union, forward, "
            "reverse, and product with two models [as the model's read-out says, or product where both link every "
            "word to its best one; otherwise grow-diag-final-and].",
            show_default=False,
        ),
    ] = "",
    extra: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="More pairs to learn from, which get no links; may be repeated."),
    ] = None,
    links: Annotated[Path | None, typer.Option(metavar="FILE", help="Score the links of a file; make none.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to write the links [stdout].")] = None,
    gold: Annotated[Path | None, typer.Option(metavar="FILE", help="Gold links, to score the links against.")] = None,
    gold_base: Annotated[int, typer.Option(metavar="0|1", help="The number of the first word in the gold file.")] = 0,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Leave out gold links outside of their sentences, and report how many.")
    ] = False,
    device: Device = "auto",
    threads: Threads = 0,
    batch_tokens: BatchTokens = 4096,
    json: Json = False,
) -> None:
    """Link the words of sentence pairs, and score the links.

    Prints a line of links for each pair, such as `0-0 1-2`: source word-target word, counted from 0; words are what
    white space separates. A pair with an empty side gives an empty line. Gold links are `0-0` (sure) and `1p2`
    (possible), one line for each pair, or `1 0 0 S`, one line for each link. --gold reports precision, recall and
    alignment error rate. With --model, links are read from a model's attention by its read-out (`heedful readout`).
    """
    if links and (method or extra or out or model):
        raise ConfigError("--links scores links of a file; leave out --method, --model, --extra and --out")
    if model and (method or extra):
        raise ConfigError("--model reads links from a model, which learns nothing here; leave out --method and --extra")
    if reverse and not model:
        raise ConfigError("--reverse is a second model, for the other direction; name the first with --model")
    if symmetry == "product" and not (model and reverse):
        raise ConfigError("--symmetry product multiplies the weights of two models; name them: --model and --reverse")
    if model and not reverse and symmetry not in ("", "forward"):
        raise ConfigError(f"--symmetry {symmetry} combines two directions; name a second model with --reverse")
    if links and not gold:
        raise ConfigError("--links is for scoring; name the gold links to compare with by --gold")
    if gold is None and lenient:
        raise ConfigError("--lenient is about gold links; it needs --gold")
    if out is not None and not out.parent.is_dir():
        raise ConfigError(f"{out}: there is no folder {out.parent}")
    if out is not None and out.is_dir():
        raise ConfigError(f"{out}: this is a folder; name a file for the links")
    given = _pairs(pair_files(pairs, source, target, columns, format_))
    # Read first: an error in it is reported before links are made.
    wanted = read_gold_file(gold, given, gold_base, lenient) if gold else None
    if links:
        _report(_read_links(links, given), wanted, "", json, on_stdout=True)
        return
    if model:
        with name_options():
            translator = open_model(model, None, device, threads)
            check_direction(model, translator, given, columns)
            other = open_model(reverse, None, device, threads) if reverse else None
            aligned = _by_model(model, given, translator, other, symmetry, batch_tokens, json and out is None)
    else:
        more = _extra(extra, columns, format_)
        aligned = _statistical(given, method or "ibm", symmetry or "grow-diag-final-and", more)
    _write(aligned, given, out, json)
    _report(aligned.links, wanted, aligned.symmetry if reverse else "", json, on_stdout=bool(out))


def _statistical(given: Pairs, method: str, symmetry: str, extra: Pairs) -> AlignedPairs:
    """Align by a statistical method, with a progress bar; report pairs that are too long."""
    from heedful.alignment import HEURISTICS, ROUNDS
    from heedful.translator.aligning import METHODS, align

    choose("method", method, METHODS)
    choose("symmetry", symmetry, HEURISTICS)
    with progress_bar(f"sentence pairs, read {ROUNDS} times", ROUNDS * (len(given) + len(extra))) as count:
        aligned = align(given, method=method, symmetry=symmetry, extra=extra, progress=count)
    if long := len(aligned.skipped):
        pairs, have = ("pairs", "have") if long > 1 else ("pair", "has")
        log(f"{long:,} {pairs} of {next(iter(aligned.skipped.values()))} {have} no links")
    return aligned


def _by_model(
    model: Path,
    given: Pairs,
    translator: Translator,
    reverse: Translator | None,
    symmetry: str,
    batch_tokens: int,
    weights: bool,
) -> AlignedPairs:
    """Align by one or two models, with a progress bar; report pairs that are too long, blank lines, unknown words."""
    from heedful.translator.aligning import align

    with progress_bar(f"aligning with {model}", len(given)) as count:
        aligned = align(
            given,
            translator,
            reverse=reverse,
            symmetry=symmetry,
            weights=weights,
            batch_tokens=batch_tokens,
            progress=count,
        )
    notes = Notes()
    for row, (x, y) in enumerate(given):
        why = aligned.skipped.get(row)
        unknown = () if why else [*translator.unknown(x), *translator.unknown(y, target=True)]
        notes.add([f"{why}; it has no links"] if why else (), unknown)
    notes.log()
    if blank := sum(not (x and y) for x, y in given):
        log(f"{blank:,} line{'s' * (blank > 1)} with an empty side: no links")
    return aligned


def _pairs(files: Iterable[PairFile]) -> list[tuple[str, str]]:
    """Return all pairs, also those with an empty side: a line in is a line out."""
    from heedful.data import sides

    rows = list(chain.from_iterable(sides(file.rows()) for file in files))
    if not rows:
        raise DataError("there are no sentence pairs to align")
    return rows


def _extra(files: list[Path] | None, columns: str, format_: str) -> list[tuple[str, str]]:
    """Return pairs to learn from; --columns and --format hold for them, unless their names say otherwise."""
    from heedful.data import PairFile
    from heedful.data.formats import format_of

    return _pairs(PairFile(str(file), format_of(str(file)) or format_, columns) for file in files) if files else []


def read_gold_file(path: Path, given: Pairs, base: int = 0, lenient: bool = False) -> Gold:
    """Return the gold links of sentence pairs; report how many are left out."""
    from heedful.alignment import read_gold
    from heedful.data import read_lines

    lengths = [(len(x.split()), len(y.split())) for x, y in given]
    gold = read_gold(read_lines(path), lengths, base=base, name=str(path), lenient=lenient)
    if gold.left_out:
        links = "1 gold link outside of its" if gold.left_out == 1 else f"{gold.left_out:,} gold links outside of their"
        log(f"{path}: {links} sentences left out")
    return gold


def _read_links(path: Path, given: Pairs) -> list[Links]:
    """Return the links of a file, each checked against its sentences as gold links are."""
    return read_gold_file(path, given).possible


def _write(aligned: AlignedPairs, given: Pairs, out: Path | None, json: bool) -> None:
    """Write a line for each pair."""
    from heedful.alignment import text
    from heedful.files import write_whole

    if out is not None:
        write_whole(out, "".join(f"{text(links)}\n" for links in aligned.links).encode())
        return
    for row, ((source, target), links) in enumerate(zip(given, aligned.links, strict=True)):
        if json:
            alignment = aligned.alignments[row] if aligned.alignments else None
            record = {"links": sorted(links)} if alignment is None else alignment.plain()
            print_json({"source": source, "target": target, **record})
        else:
            print(text(links))


def _report(links: Sequence[Links], gold: Gold | None, symmetry: str, json: bool, on_stdout: bool) -> None:
    """Report how many links there are and their scores, on stdout if the links themselves are not there.

    `symmetry` is how those of two models were combined.
    """
    from heedful.alignment import score

    scores = score(links, gold.sure, gold.possible) if gold else None
    if json:
        if scores or on_stdout:
            record = {"pairs": len(links), "links": sum(map(len, links))}
            combined = {"symmetry": symmetry} if symmetry else {}
            print_json({**record, **combined, **(scores._asdict() if scores else {})})
        return
    if scores:
        (print if on_stdout else log)(_line(scores, symmetry))
    else:
        count, pairs = sum(map(len, links)), len(links)
        how = f", symmetry: {symmetry}" if symmetry else ""
        log(f"{count:,} link{'s' * (count != 1)} in {pairs:,} pair{'s' * (pairs != 1)}{how}")


def _line(scores: AlignmentScores, symmetry: str) -> str:
    shares = f"precision {100 * scores.precision:.2f} %, recall {100 * scores.recall:.2f} %"
    counts = f"{scores.links:,} links, {scores.gold:,} sure ones in the gold"
    if symmetry:
        counts += f"; symmetry: {symmetry}"
    return f"alignment error rate {100 * scores.error_rate:.2f} %, {shares} ({counts})"
