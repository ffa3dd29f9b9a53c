"""Options and helpers that several verbs share."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.output import print_json, say
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.data.formats import PairFile

__all__ = [
    "Ascii",
    "BatchTokens",
    "Columns",
    "Device",
    "Format",
    "Json",
    "Model",
    "PairFiles",
    "Source",
    "Target",
    "Threads",
    "check_sides",
    "pair_files",
    "pair_rows",
    "print_json",
    "program",
    "refuse_idle",
    "say",
    "say_of",
    "use_threads",
    "width",
]

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder, or hf:ORG/NAME.", show_default=False)]
PairFiles = Annotated[
    list[Path] | None,
    typer.Argument(metavar="PAIRS", help="TSV, CSV or JSON lines, plain or .gz; - is stdin.", show_default=False),
]
Columns = Annotated[
    str,
    typer.Option(
        metavar="S,T", help="Where source and target are: columns from 1, or names [1,2 in TSV].", show_default=False
    ),
]
Format = Annotated[
    str,
    typer.Option("--format", metavar="tsv|csv|jsonl", help="How PAIRS are written [by the name].", show_default=False),
]
Source = Annotated[Path | None, typer.Option(metavar="FILE", help="Source sentences, one on a line, instead of PAIRS.")]
Target = Annotated[Path | None, typer.Option(metavar="FILE", help="Their translations, line by line.")]
Device = Annotated[str, typer.Option(metavar="auto|cpu|cuda|mps", help="Where to compute.")]
Threads = Annotated[int, typer.Option(min=0, help="CPU threads; 0: chosen automatically.")]
BatchTokens = Annotated[int, typer.Option(min=1, help="Source tokens translated at once.")]
Ascii = Annotated[bool, typer.Option("--ascii", help="Draw with ASCII characters.")]
Json = Annotated[bool, typer.Option("--json", help="Print results as JSON.")]


def pair_files(
    pairs: list[Path] | None, source: Path | None, target: Path | None, columns: str, format_: str
) -> tuple[PairFile, ...]:
    """Return where pairs are to be read from; refuse those given in two ways, or in half of one."""
    from heedful.data.columns import parse_columns
    from heedful.data.formats import PairFile

    if columns:
        parse_columns(columns)
    if not (pairs or source or target):
        raise ConfigError("no sentence pairs were given; name files of PAIRS, or use --source and --target")
    check_sides(bool(pairs), source, target)
    if source:
        if columns or format_:
            raise ConfigError(
                "--columns and --format go with PAIRS; --source and --target hold a sentence on each line"
            )
        return (PairFile(str(source), target=str(target)),)
    return tuple(PairFile(str(path), format_, columns) for path in pairs or ())


def pair_rows(files: Iterable[PairFile]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of files, those with an empty side as well: a line in is a line out."""
    from heedful.data import sides

    for file in files:
        yield from sides(file.rows(say_of(file.name)))


def check_sides(
    pairs: bool,
    source: Path | None,
    target: Path | None,
    names: tuple[str, str, str] = ("PAIRS", "--source", "--target"),
) -> None:
    """Refuse parallel files beside other pairs, or one without the other; `names` are those of the options."""
    if pairs and (source or target):
        raise ConfigError(f"give either {names[0]} or {names[1]} and {names[2]}, not both")
    if bool(source) != bool(target):
        raise ConfigError(f"{names[1]} and {names[2]} belong together; only one of them was given")


def refuse_idle(why: str, given: Mapping[str, bool]) -> None:
    """Refuse options that were given although they change nothing; `why` says when that is."""
    for option, there in given.items():
        if there:
            raise ConfigError(f"{option} has no effect {why}; leave it out")


def use_threads(threads: int) -> None:
    """Limit PyTorch to some threads."""
    if threads:
        import torch

        torch.set_num_threads(threads)


def say_of(name: str) -> Callable[[str], None]:
    """Return what prints messages that are about a file of that name."""
    return lambda message: say(f"{name}: {message}")


def width() -> int:
    """Return how many columns stdout has; 80 when it is not a terminal."""
    return max(40, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 80


def program() -> str:
    """Return how this person runs heedful."""
    if shutil.which("heedful"):
        return "heedful"
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return f"{quote(Path(sys.executable).name)} -m heedful"
    try:
        return quote(str(started.resolve().relative_to(Path.cwd())))
    except ValueError:
        return quote(str(started))
