"""What `heedful evaluate`, `compare` and `report` share: options, the test set, systems, tables of scores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.decoding import opened, refuse_wrong_way
from heedful.cli.notes import Notes
from heedful.cli.options import check_sides, refuse_idle, say
from heedful.errors import ConfigError, DataError, choose

if TYPE_CHECKING:
    from heedful.decoding import Decoding
    from heedful.evaluation.systems import System, SystemOutput
    from heedful.evaluation.test_set import TestSet
    from heedful.metrics import Difference, Interval, LengthRow, LengthTable
    from heedful.translator import Translator

__all__ = [
    "Format",
    "ReferenceColumns",
    "ReferenceFiles",
    "Resamples",
    "Seed",
    "SystemPath",
    "Test",
    "TestFiles",
    "Translating",
    "can_be_written",
    "check_test",
    "print_notes",
    "read_tests",
    "scores_table",
    "systems",
    "versus",
]

SystemPath = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="A model folder, hf:ORG/NAME, or a file of translations, one on a line.",
        show_default=False,
    ),
]
TestFiles = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PAIRS", help="Files of sentences and references, plain or .gz; - is stdin.", show_default=False
    ),
]
ReferenceColumns = Annotated[
    str,
    typer.Option(
        metavar="S,R,…",
        help="The columns of the source and of its references: numbers from 1, or names [1,2].",
        show_default=False,
    ),
]
ReferenceFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--reference", "--target", metavar="FILE", help="References, line by line; may be repeated.", show_default=False
    ),
]
Format = Annotated[
    str,
    typer.Option("--format", metavar="tsv|csv|jsonl", help="The format of PAIRS [by the name].", show_default=False),
]
Test = Annotated[
    str,
    typer.Option(metavar="randomisation|bootstrap", help="The significance test for the difference of two systems."),
]
Resamples = Annotated[
    int, typer.Option(min=0, metavar="N", help="Resamples of the bootstrap, for the intervals; 0: no intervals.")
]
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="The seed of the random numbers.")]

WIDTHS = {"bleu": 6, "chrf": 6, "ter": 6, "exact": 8}
ENDS = (("95 % from", "low"), ("95 % to", "high"))


@dataclass(frozen=True)
class Translating:
    """How models translate, as the options have it."""

    decoding: Decoding
    device: str = "auto"
    threads: int = 0
    batch_tokens: int = 4096
    copy_unknown: bool = False


def read_tests(
    pairs: Sequence[Path] | None,
    source: Path | None = None,
    references: Sequence[Path] | None = None,
    columns: str = "",
    format_: str = "",
) -> TestSet:
    """Read a test set; report how many lines are passed over."""
    from heedful.evaluation.test_set import read_test_set

    check_sides(bool(pairs), source, references[0] if references else None, ("PAIRS", "--source", "--reference"))
    if not pairs and not source:
        raise ConfigError("no sentences were given; name files of PAIRS, or use --source and --reference")
    if source:
        why = "with --source and --reference, which hold a sentence on each line"
        refuse_idle(why, {"--columns": bool(columns), "--format": bool(format_)})
    read = read_test_set(pairs, source, references, columns, format_, lambda name, message: say(f"{name}: {message}"))
    if read.skipped:
        say(f"passed over {read.skipped:,} line{'s' * (read.skipped > 1)} with an empty side")
    return read


def systems(
    paths: Sequence[Path],
    test_set: TestSet,
    how: Translating,
    others: list[str] | None = None,
    *,
    columns: str | None = None,
    links: bool = False,
) -> list[System]:
    """Return the systems to evaluate: files are read now, models are opened when their turn comes.

    `others` make an ensemble with the first. `columns` are those that were given, None if the command has no such
    option; `links` says whether a broken read-out is an error.
    """
    from heedful.evaluation.systems import System, read_translations

    if all(map(_is_file, paths)):
        _refuse_idle(paths, how)
    if others and _is_file(paths[0]):
        raise ConfigError(f"--with adds models to a model, but {paths[0]} is a file of translations")
    if [*map(str, paths), *test_set.files].count("-") > 1:
        raise ConfigError("only one file can be read from standard input, and several were given as -")
    for path in paths:
        if not _is_file(path) and not path.exists() and not str(path).startswith("hf:"):
            raise DataError(f"{path}: there is no such model folder, nor such a file of translations")
    lines = test_set.rows

    def opener(path: Path, others: list[str] | None) -> Callable[[], Translator]:
        def open_model() -> Translator:
            translator = opened(path, others, how.device, how.threads, links=links)
            refuse_wrong_way(path, translator, [(line.source, line.references[0]) for line in lines], columns)
            if not how.threads:
                translator.choose_threads([line.source for line in lines], how.decoding)
            return translator

        return open_model

    return [
        System(str(path), translations=read_translations(path, test_set), path=path)
        if _is_file(path)
        else System(str(path), opener(path, others if i == 0 else None), path=path)
        for i, path in enumerate(paths)
    ]


def print_notes(outputs: Iterable[SystemOutput], max_length: bool = False) -> None:
    """Print the notes on translations, once each; `max_length` says whether the command has that option."""
    for each in outputs:
        notes = Notes(max_length)
        for line in each.notes:
            notes.add(line)
        notes.say()


def can_be_written(option: str, path: Path | None, ending: str = "") -> None:
    """Raise ConfigError for a file that could not be written, before the work for it is done."""
    if path is None:
        return
    if ending and path.suffix.lower() != ending:
        raise ConfigError(f"{option} {path}: the page is written as {ending}; choose a name that ends with it")
    if path.is_dir() or not path.parent.is_dir():
        what = "this is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise ConfigError(f"{option} {path}: {what}; choose another name")
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(f"{option} {path}: no permission to write to {path.parent}; choose another folder")


def check_test(test: str, resamples: int) -> None:
    """Raise ConfigError for a test that cannot be done, before the work for it is done."""
    from heedful.metrics import TESTS

    if choose("test", test, TESTS) == "bootstrap" and not resamples:
        raise ConfigError("--test bootstrap needs --resamples; choose more than 0, or --test randomisation")


def _refuse_idle(paths: Sequence[Path], how: Translating) -> None:
    """Raise ConfigError for options of translating where nothing is translated."""
    from heedful.decoding import Decoding

    given = {}
    for mine, plain in ((how.decoding, Decoding()), (how, Translating(Decoding()))):
        for field in fields(mine):
            if field.name != "decoding":
                option = f"--{field.name.replace('_', '-')}"
                given[option] = getattr(mine, field.name) != getattr(plain, field.name)
    what = "is a file of translations" if len(paths) == 1 else "are files of translations"
    refuse_idle(f"where {' and '.join(map(str, paths))} {what}", given)


def _is_file(path: Path) -> bool:
    return str(path) == "-" or path.is_file()


def scores_table(scores: LengthTable, intervals: Mapping[str, Interval]) -> str:
    """Return scores by length, with the intervals of the last row below it."""
    lines = [f"{'source words':<12} {'pairs':>7} {_titles()}"]
    lines += [_row(row.label, row) for row in scores.rows]
    lines.append(_row("all", scores.total))
    for label, end in ENDS if intervals else ():
        lines.append(_line(label, {name: getattr(one, end) for name, one in intervals.items()}))
    return "\n".join(lines)


def versus(title: str, differences: Mapping[str, Difference], names: tuple[str, str]) -> str:
    """Return the scores of two systems by metric, the difference with its interval, and the verdicts.

    A system without a name has its scores elsewhere.
    """
    from heedful.metrics import METRICS

    lines = [f"{title:<20} {_titles()}"]
    for name, which in zip(names, ("first", "second"), strict=True):
        lines += [_line(name, {key: getattr(one, which) for key, one in differences.items()})] if name else []
    lines.append(_line("difference", {key: one.value for key, one in differences.items()}, "+"))
    for label, end in ENDS if all(one.interval for one in differences.values()) else ():
        lines.append(_line(label, {key: getattr(one.interval, end) for key, one in differences.items()}, "+"))
    verdicts = (f"{METRICS[key].removesuffix(' %'):<7}{one}" for key, one in differences.items())
    return "\n".join([*lines, "", *verdicts])


def _titles() -> str:
    from heedful.metrics import METRICS

    return " ".join(f"{METRICS[name]:>{width}}" for name, width in WIDTHS.items())


def _row(label: str, row: LengthRow) -> str:
    return f"{label:<12} {row.pairs:>7,} {_cells(row.plain())}"


def _line(label: str, values: Mapping[str, Any], sign: str = "") -> str:
    return f"{label:<20} {_cells(values, sign)}"


def _cells(values: Mapping[str, Any], sign: str = "") -> str:
    return " ".join(f"{values[name]:>{sign}{width}.1f}" for name, width in WIDTHS.items())
