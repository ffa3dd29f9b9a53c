"""`heedful align`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.align_by_model import ByModel
from heedful.cli.options import (
    BatchTokens,
    Columns,
    Device,
    Format,
    Json,
    PairFiles,
    Source,
    Target,
    Threads,
    pair_files,
    print_json,
    say,
)
from heedful.errors import ConfigError, DataError, choose

if TYPE_CHECKING:
    from heedful.align import AlignmentScores, Gold, Links
    from heedful.data import PairFile

__all__ = ["align", "gold_links", "linked"]

METHODS = ("eflomal", "ibm")

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
        typer.Option(metavar="ibm|eflomal", help="By our own statistical aligner, or the program eflomal [ibm]."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL", help="By where a model looks: a model folder, or hf:ORG/NAME.", show_default=False
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
            help="How both directions are put together: grow-diag-final-and, grow-diag, intersection, union, "
            "forward, reverse, and with --model product [as the model's read-out says; product for two "
            "models that link every word to its best one; grow-diag-final-and].",
            show_default=False,
        ),
    ] = "",
    extra: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="More pairs to learn from, which are not linked; may be repeated."),
    ] = None,
    links: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take links from a file, to score them; none are made.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to write the links [stdout].")] = None,
    gold: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Links that people made, to score ours with.")
    ] = None,
    gold_base: Annotated[int, typer.Option(metavar="0|1", help="What the gold file counts words from.")] = 0,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Leave out gold links outside of their sentences, and say how many.")
    ] = False,
    device: Device = "auto",
    threads: Threads = 0,
    batch_tokens: BatchTokens = 4096,
    json: Json = False,
) -> None:
    """Link the words of sentence pairs, and say how good the links are.

    A line of links for each pair, such as `0-0 1-2`: source word-target word, counted from 0; words are what white
    space separates. A pair with an empty side has an empty line. Gold links are `0-0` (sure) and `1p2` (possible) on
    a line for each pair, or `1 0 0 S`, one on a line. --gold gives precision, recall and alignment error rate.
    With --model the links are read from a model's weights, as its read-out says (`heedful readout`).
    """
    if links and (method or extra or out or model):
        raise ConfigError("--links takes links that are there already; leave out --method, --model, --extra and --out")
    if model and (method or extra):
        raise ConfigError("--model reads links from a model, which learns nothing here; leave out --method and --extra")
    if reverse and not model:
        raise ConfigError("--reverse is a second model, for the other direction; name the first with --model")
    if symmetry == "product" and not (model and reverse):
        raise ConfigError("--symmetry product multiplies the weights of two models; name them: --model and --reverse")
    if links and not gold:
        raise ConfigError("--links is for scoring; say with --gold what the links are to be compared with")
    if gold is None and lenient:
        raise ConfigError("--lenient is about gold links; it goes with --gold")
    if out is not None and not out.parent.is_dir():
        raise ConfigError(f"{out}: there is no folder {out.parent}")
    if out is not None and out.is_dir():
        raise ConfigError(f"{out}: this is a folder; name a file for the links")
    given = _pairs(pair_files(pairs, source, target, columns, format_))
    # First: it is wrong sooner than links are made.
    wanted = gold_links(gold, given, gold_base, lenient) if gold else None
    details, used = None, ""
    if model:
        by_model = ByModel(model, reverse, symmetry, device, threads, batch_tokens, columns)
        found, details, used = by_model.align(given, json and out is None)
    elif links:
        found = _read(links, given)
    else:
        found = linked(given, method or "ibm", symmetry or "grow-diag-final-and", _extra(extra, columns, format_))
    if not links:
        _write(found, given, out, json, details)
    _report(found, wanted, used, json, on_stdout=bool(links or out))


def linked(given: Pairs, method: str, symmetry: str, extra: Pairs = ()) -> list[Links]:
    """Return the links of sentence pairs by a statistical method; what has taken place is said on stderr."""
    from heedful.align import MOST_CELLS, ROUNDS, SYMMETRIES, align_pairs, eflomal_directions, symmetrise
    from heedful.cli.progress import counting

    choose("method", method, METHODS)
    choose("symmetry", symmetry, SYMMETRIES)
    sources, targets = [x for x, _ in given], [y for _, y in given]
    if method == "eflomal":
        found: list[Links] = [frozenset()] * len(given)
        for row, forward, reverse in eflomal_directions(sources, targets, extra=extra):
            found[row] = symmetrise(forward, reverse, symmetry)
        return found
    with counting(f"sentence pairs, read {ROUNDS} times", ROUNDS * (len(given) + len(extra))) as count:
        found = align_pairs(sources, targets, symmetry=symmetry, extra=extra, watch=count)
    if long := sum(len(x.split()) * len(y.split()) > MOST_CELLS for x, y in given):
        pairs, have = ("pairs", "have") if long > 1 else ("pair", "has")
        say(f"{long:,} {pairs} of more than {MOST_CELLS:,} source words times target words {have} no links")
    return found


def _pairs(files: Iterable[PairFile]) -> list[tuple[str, str]]:
    """Return all pairs, those with an empty side as well: a line in is a line out."""
    from heedful.data import sides

    found = list(chain.from_iterable(sides(file.rows()) for file in files))
    if not found:
        raise DataError("there are no sentence pairs to align")
    return found


def _extra(files: list[Path] | None, columns: str, format_: str) -> list[tuple[str, str]]:
    """Return pairs to learn from; the options of PAIRS tell what the files' own names do not."""
    from heedful.data import PairFile
    from heedful.data.formats import format_of

    return _pairs(PairFile(str(file), format_of(str(file)) or format_, columns) for file in files) if files else []


def _words(pair: tuple[str, str]) -> tuple[int, int]:
    return len(pair[0].split()), len(pair[1].split())


def gold_links(path: Path, given: Pairs, base: int, lenient: bool) -> Gold:
    """Return the gold links of sentence pairs; say how many are left out."""
    from heedful.align import read_gold
    from heedful.data import read_lines

    read = read_gold(read_lines(path), list(map(_words, given)), base=base, name=str(path), lenient=lenient)
    if read.left_out:
        links = "1 gold link outside of its" if read.left_out == 1 else f"{read.left_out:,} gold links outside of their"
        say(f"{path}: {links} sentences left out")
    return read


def _read(path: Path, given: Pairs) -> list[Links]:
    """Return the links of a file, each checked against its sentences as gold links are."""
    from heedful.align import read_gold
    from heedful.data import read_lines

    return read_gold(read_lines(path), list(map(_words, given)), name=str(path)).possible


def _write(
    found: Sequence[Links], given: Pairs, out: Path | None, json: bool, details: Sequence[dict[str, Any]] | None
) -> None:
    """Write a line for each pair; `details` are what JSON has in place of the links alone."""
    from heedful.align import text
    from heedful.disk import write_whole

    if out is not None:
        write_whole(out, "".join(f"{text(links)}\n" for links in found).encode())
        return
    more = details or [{"links": sorted(links)} for links in found]
    for (source, target), links, record in zip(given, found, more, strict=True):
        if json:
            print_json({"source": source, "target": target, **record})
        else:
            print(text(links))


def _report(found: Sequence[Links], wanted: Gold | None, symmetry: str, json: bool, on_stdout: bool) -> None:
    """Say how many links there are and how good they are: a result if the links themselves went elsewhere.

    `symmetry` is how those of two models were joined.
    """
    from heedful.align import score

    scores = score(found, wanted.sure, wanted.possible) if wanted else None
    if json:
        if scores or on_stdout:
            record = {"pairs": len(found), "links": sum(map(len, found))}
            joined = {"symmetry": symmetry} if symmetry else {}
            print_json({**record, **joined, **(scores._asdict() if scores else {})})
        return
    if scores:
        (print if on_stdout else say)(_line(scores, symmetry))
    else:
        links, pairs = sum(map(len, found)), len(found)
        how = f", symmetry: {symmetry}" if symmetry else ""
        say(f"{links:,} link{'s' * (links != 1)} in {pairs:,} pair{'s' * (pairs != 1)}{how}")


def _line(scores: AlignmentScores, symmetry: str) -> str:
    shares = f"precision {100 * scores.precision:.2f} %, recall {100 * scores.recall:.2f} %"
    counts = f"{scores.links:,} links, {scores.gold:,} sure ones in the gold"
    if symmetry:
        counts += f"; symmetry: {symmetry}"
    return f"alignment error rate {100 * scores.error_rate:.2f} %, {shares} ({counts})"
