"""`heedful align`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import heedful
from heedful.cli import options
from heedful.cli.output import log, print_json, progress_bar
from heedful.data.files import called
from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.alignment import AlignmentScores, Gold, Links
    from heedful.data import PairFile
    from heedful.translator import AlignedPairs


JOINED = "grow-diag-final-and"  # how links are joined by default
Rows = Sequence[tuple[str, str]]


def align(
    pairs: options.PairFiles = None,
    *,
    source: options.Source = None,
    target: options.Target = None,
    columns: options.Columns = "",
    format_: options.Format = "",
    method: Annotated[
        str | None,
        typer.Option(metavar="ibm|eflomal", help="The statistical aligner: built in, or the program eflomal [ibm]."),
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
            help="How two directions are combined: grow-diag[-final[-and]], grow-diag[-final]-strict, intersection, "
            "union, forward, reverse, and product with two models [by the read-out, or product if both link every word "
            "to its largest weight; otherwise grow-diag-final-and].",
            show_default=False,
        ),
    ] = "",
    extra: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="More training pairs for the aligner, without links; may be repeated."),
    ] = None,
    links: Annotated[Path | None, typer.Option(metavar="FILE", help="Only score the links of this file.")] = None,
    join: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="FORWARD REVERSE",
            help="Only join two files of links by --symmetry; PAIRS are not needed.",
            show_default=False,
        ),
    ] = None,
    reversed_: Annotated[
        bool, typer.Option("--reversed", help="With --join: the lines of REVERSE are target-source.")
    ] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the links to this file [stdout].")] = None,
    gold: Annotated[Path | None, typer.Option(metavar="FILE", help="Gold links, to score the links against.")] = None,
    gold_base: options.GoldBase = 0,
    lenient: options.Lenient = False,
    device: options.Device = "auto",
    threads: options.Threads = 0,
    batch_tokens: options.BatchTokens = 0,
    json: options.Json = False,
) -> None:
    """Align the words of sentence pairs, and score the links.

    Prints a line of links for each pair, such as `0-0 1-2`: source word-target word, separated by white space and
    counted from 0. A pair with an empty side gives an empty line. Gold links are `0-0` (sure) and `1p2`
    (possible), one line for each pair, or `1 0 0 S`, one line for each link. --gold reports precision, recall and
    alignment error rate. With --model, links are read from a model's attention by its read-out (`heedful readout`).
    With --join, the links of two directions are read from files, a line for each pair.
    """
    from heedful.data.links import write_links

    out = None if out is None or str(out) == "-" else out
    if links and (method or extra or out or model):
        raise ConfigError("--links only scores the links of a file; leave out --method, --model, --extra and --out")
    if join is None:
        options.check_unused("without --join", {"--reversed": reversed_})
    else:
        unused = {"--method": bool(method), "--model": bool(model), "--reverse": bool(reverse), "--extra": bool(extra)}
        unused |= {"--links": bool(links), "--device": device != "auto", "--threads": threads > 0}
        options.check_unused("with --join", {**unused, "--batch-tokens": batch_tokens > 0})
        if join == (Path("-"), Path("-")):
            raise ConfigError("--join: only one of the two files can be read from standard input, but both are -")
    if model and (method or extra):
        raise ConfigError("--method and --extra are for the statistical aligner; leave them out with --model")
    if reverse and not model:
        raise ConfigError("--reverse is a second model; name the first with --model")
    if symmetry == "product" and join:
        raise ConfigError("--symmetry product multiplies weights, and --join reads links, which have none")
    if symmetry == "product" and not (model and reverse):
        raise ConfigError("--symmetry product multiplies the weights of two models; name them: --model and --reverse")
    if model and not reverse and symmetry not in ("", "forward"):
        raise ConfigError(f"--symmetry {symmetry} combines two directions; name a second model with --reverse")
    if links and not gold:
        raise ConfigError("--links needs --gold, the gold links to compare with")
    if gold is None and lenient:
        raise ConfigError("--lenient needs --gold")
    options.check_writable("--out", out)
    for path in pairs or ():
        if (Path(path) / "config.json").is_file():
            raise ConfigError(f"{path} is a model, and PAIRS are files of sentences; name the model with --model")
    if join:
        rows = (
            read_rows(options.pair_files(pairs, source, target, columns, format_))
            if pairs or source or target
            else None
        )
        joined: Iterable[Links] = _joined(join, symmetry or JOINED, reversed_, rows)
        gold_links = None
        if gold:
            joined = list(joined)
            gold_links = read_gold_file(gold, len(joined) if rows is None else rows, gold_base, lenient)
        _write_joined(joined, rows, gold_links, symmetry or JOINED, out, json)
        return
    rows = read_rows(options.pair_files(pairs, source, target, columns, format_))
    # Read first, so that an error in it is reported before anything is aligned.
    gold_links = read_gold_file(gold, rows, gold_base, lenient) if gold else None
    if links:  # checked against their sentences as gold links are
        _report_links(read_gold_file(links, rows).possible, gold_links, "", json, on_stdout=True)
        return
    if model:
        with options.name_options():
            translator = options.open_model(model, None, device, threads)
            if translator.reads_images:
                raise ConfigError(
                    f"{model}: this model captions images, and links are between words of two texts; for the regions "
                    "of the words of a caption, use heedful caption --alignments"
                )
            options.check_direction(model, translator, rows, columns)
            other = options.open_model(reverse, None, device, threads) if reverse else None
            with progress_bar(f"aligning with {model}", len(rows)) as count:
                aligned = heedful.align(
                    rows,
                    translator,
                    reverse=other,
                    symmetry=symmetry,
                    weights=json and out is None,
                    batch_tokens=batch_tokens,
                    progress=count,
                )
        _log_notes(aligned, translator, rows)
    else:
        aligned = _statistical(rows, method or "ibm", symmetry, _extra(extra, columns, format_))
    if out is not None:
        write_links(out, aligned.links)
    else:
        _print(aligned, rows, json)
    _report_links(aligned.links, gold_links, aligned.symmetry if reverse else "", json, on_stdout=bool(out))


def _statistical(rows: Rows, method: str, symmetry: str, extra: Rows) -> AlignedPairs:
    """Align by a statistical aligner, with a progress bar; report pairs that are too long."""
    from heedful.alignment import ROUNDS

    with progress_bar(f"sentence pairs, read {ROUNDS} times", ROUNDS * (len(rows) + len(extra))) as count:
        aligned = heedful.align(rows, method=method, symmetry=symmetry, extra=extra, progress=count)
    if long := len(aligned.skipped):
        pairs, have = ("pairs", "have") if long > 1 else ("pair", "has")
        log(f"{long:,} {pairs} of {next(iter(aligned.skipped.values()))} {have} no links")
    return aligned


def _log_notes(aligned: AlignedPairs, translator: heedful.Translator, rows: Rows) -> None:
    """Report pairs that are too long for the model, unknown words, and lines with an empty side."""
    notes = options.Notes()
    unknown = (translator.unknown_pieces([pair[side] for pair in rows], target=bool(side)) for side in (0, 1))
    for row, (of_source, of_target) in enumerate(zip(*unknown, strict=True)):
        why = aligned.skipped.get(row)
        notes.add([f"{why}; it has no links"] if why else (), () if why else [*of_source, *of_target])
    notes.log()
    if blank := sum(not (x and y) for x, y in rows):
        log(f"{blank:,} line{'s' * (blank > 1)} with an empty side: no links")


def read_rows(files: Iterable[PairFile]) -> list[tuple[str, str]]:
    """Return all pairs, also those with an empty side: a line in is a line out.

    Parallel files may have an id and a tab before each sentence, the same in both; they are left out.
    """
    from heedful.data import sides

    rows = list[tuple[str, str]]()
    for file in files:
        pairs = list(sides(file.rows()))
        parts = [(x.partition("\t"), y.partition("\t")) for x, y in pairs]
        if file.target and any(x[1] and y[1] for x, y in parts) and all(x[0] == y[0] for x, y in parts):
            log(f"{file.full_name}: left out the ids before each sentence")
            pairs = [(x[2], y[2]) for x, y in parts]
        rows += pairs
    if not rows:
        raise DataError("there are no sentence pairs to align")
    return rows


def _extra(files: list[Path] | None, columns: str, format_: str) -> list[tuple[str, str]]:
    """Return more pairs for the aligner; --columns and --format apply unless the name of a file has a format."""
    from heedful.data import PairFile
    from heedful.data.formats import format_of

    return read_rows(PairFile(str(file), format_of(str(file)) or format_, columns) for file in files) if files else []


def read_gold_file(path: Path, rows: Rows | int, base: int = 0, lenient: bool = False) -> Gold:
    """Return the gold links of sentence pairs, or of that many pairs; report how many are skipped."""
    from heedful.alignment import read_gold
    from heedful.data import read_lines

    lengths = rows if isinstance(rows, int) else [(len(x.split()), len(y.split())) for x, y in rows]
    gold = read_gold(read_lines(path), lengths, base=base, name=called(path), lenient=lenient)
    if gold.left_out:
        links = "1 gold link outside of its" if gold.left_out == 1 else f"{gold.left_out:,} gold links outside of their"
        log(f"{path}: skipped {links} sentences")
    return gold


def _joined(files: tuple[Path, Path], symmetry: str, flipped: bool, rows: Rows | None) -> Iterator[Links]:
    """Yield the joined links of two files; with sentences, links outside of them are an error."""
    from heedful.alignment import flip, join_links, symmetrize
    from heedful.data import read_lines

    if rows is None:
        names = (called(files[0]), called(files[1]))
        yield from join_links(read_lines(files[0]), read_lines(files[1]), symmetry, flipped=flipped, names=names)
        return
    forward = read_gold_file(files[0], rows).possible
    reverse = read_gold_file(files[1], [(y, x) for x, y in rows] if flipped else rows).possible
    for one, other in zip(forward, reverse, strict=True):
        yield symmetrize(one, flip(other) if flipped else other, symmetry)


def _write_joined(
    links: Iterable[Links], rows: Rows | None, gold: Gold | None, symmetry: str, out: Path | None, json: bool
) -> None:
    """Write or print joined links as they come, and report them."""
    from heedful.alignment import score, text
    from heedful.data.links import write_links

    counts: list[int] = []

    def counted() -> Iterator[Links]:
        for each in links:
            counts.append(len(each))
            yield each

    if out is not None:
        write_links(out, counted())
    else:
        for row, each in enumerate(counted()):
            pair = {} if rows is None else dict(zip(("source", "target"), rows[row], strict=True))
            print_json({**pair, "links": sorted(each)}) if json else print(text(each))
    scores = score([*links], gold.sure, gold.possible) if gold else None
    _report(len(counts), sum(counts), scores, symmetry, json, on_stdout=bool(out))


def _print(aligned: AlignedPairs, rows: Rows, json: bool) -> None:
    """Print a line for each pair."""
    from heedful.alignment import text as pharaoh

    for row, ((source, target), links) in enumerate(zip(rows, aligned.links, strict=True)):
        if json:
            alignment = aligned.alignments[row] if aligned.alignments else None
            record = {"links": sorted(links)} if alignment is None else alignment.plain()
            print_json({"source": source, "target": target, **record})
        else:
            print(pharaoh(links))


def _report_links(links: Sequence[Links], gold: Gold | None, symmetry: str, json: bool, on_stdout: bool) -> None:
    """Report the number of links and their scores."""
    from heedful.alignment import score

    scores = score(links, gold.sure, gold.possible) if gold else None
    _report(len(links), sum(map(len, links)), scores, symmetry, json, on_stdout)


def _report(pairs: int, count: int, scores: AlignmentScores | None, symmetry: str, json: bool, on_stdout: bool) -> None:
    """Report the number of links and their scores, on stdout if the links are not printed there."""
    if json:
        if scores or on_stdout:
            combined = {"symmetry": symmetry} if symmetry else {}
            print_json({"pairs": pairs, "links": count, **combined, **(scores._asdict() if scores else {})})
        return
    how = f", symmetry: {symmetry}" if symmetry else ""
    if scores:
        (print if on_stdout else log)(f"{scores}{how}")
    else:
        log(f"{count:,} link{'s' * (count != 1)} in {pairs:,} pair{'s' * (pairs != 1)}{how}")
