"""Options and helpers that several verbs share."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from heedful.errors import ConfigError

__all__ = [
    "Ascii",
    "BatchTokens",
    "Columns",
    "Device",
    "Json",
    "Model",
    "PairFiles",
    "Source",
    "Target",
    "Threads",
    "check_pairs",
    "print_json",
    "say",
    "use_threads",
    "width",
]

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model folder, or hf:ORG/NAME.", show_default=False)]
PairFiles = Annotated[
    list[Path] | None,
    typer.Argument(metavar="PAIRS", help="TSV files, plain or .gz: source, tab, target.", show_default=False),
]
Columns = Annotated[str, typer.Option(metavar="S,T", help="The TSV columns of source and target, counted from 1.")]
Source = Annotated[Path | None, typer.Option(metavar="FILE", help="Source sentences, one on a line, instead of PAIRS.")]
Target = Annotated[Path | None, typer.Option(metavar="FILE", help="Their translations, line by line.")]
Device = Annotated[str, typer.Option(metavar="auto|cpu|cuda|mps", help="Where to compute.")]
Threads = Annotated[int, typer.Option(min=0, help="CPU threads; 0: as many as PyTorch takes.")]
BatchTokens = Annotated[int, typer.Option(min=1, help="Source tokens translated at once.")]
Ascii = Annotated[bool, typer.Option("--ascii", help="Draw with ASCII characters.")]
Json = Annotated[bool, typer.Option("--json", help="Print results as JSON.")]


def check_pairs(pairs: list[Path] | None, source: Path | None, target: Path | None) -> None:
    """Refuse pairs given in two ways, or in half of one."""
    if pairs and (source or target):
        raise ConfigError("give either PAIRS or --source and --target, not both")
    if bool(source) != bool(target):
        raise ConfigError("--source and --target belong together; only one of them was given")
    if not pairs and not source:
        raise ConfigError("no sentence pairs were given; name TSV files, or use --source and --target")


def use_threads(threads: int) -> None:
    """Limit PyTorch to some threads."""
    if threads:
        import torch

        torch.set_num_threads(threads)


def print_json(record: object) -> None:
    """Print a record on one line of stdout."""
    print(json.dumps(record, ensure_ascii=False), flush=True)


def say(message: str) -> None:
    """Print a message on stderr."""
    print(message, file=sys.stderr, flush=True)


def width() -> int:
    """Return how many columns stdout has; 80 when it is not a terminal."""
    return max(40, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 80
