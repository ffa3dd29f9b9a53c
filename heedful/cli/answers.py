"""What is measured: the translations of a model, made now, or those of a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.decoding import opened, refuse_wrong_way
from heedful.cli.exam import Exam
from heedful.cli.notes import Notes
from heedful.cli.options import refuse_idle
from heedful.cli.progress import counting
from heedful.cli.translate import one_line
from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.decoding import Decoding
    from heedful.metrics import Judged

__all__ = ["Asking", "System", "answers", "can_be_written", "judged", "save_answers"]

System = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="A model folder, hf:ORG/NAME, or a file of translations, one on a line.",
        show_default=False,
    ),
]
CHUNK = 1000  # sentences translated between two moves of the progress bar; enough to be sorted by length


@dataclass(frozen=True)
class Asking:
    """How models are asked."""

    how: Decoding
    device: str = "auto"
    threads: int = 0
    batch_tokens: int = 4096
    copy_unknown: bool = False


def answers(
    systems: Sequence[Path],
    exam: Exam,
    asking: Asking,
    others: list[str] | None = None,
    options: Sequence[str] = (),
) -> list[list[str]]:
    """Return each system's translations of the rows of an exam; `others` make an ensemble with the first.

    `options` are those that the verb has, of the ones that are named where something is odd: columns, max_length.
    Files are read before models are asked: what is missing, or wrong with them, is found at once.
    """
    if all(map(_is_file, systems)):
        _refuse_idle(systems, asking)
    if others and _is_file(systems[0]):
        raise ConfigError(f"--with adds models to a model, but {systems[0]} is a file of translations")
    if [*map(str, systems), *exam.files].count("-") > 1:
        raise ConfigError("only one file can be read from standard input, and several were given as -")
    for path in systems:
        _check_exists(path)
    found = {i: _from_file(path, exam) for i, path in enumerate(systems) if _is_file(path)}
    for i, path in enumerate(systems):
        if i not in found:
            found[i] = _from_model(path, exam, asking, others if i == 0 else None, options)
    return [found[i] for i in range(len(systems))]


def judged(name: str, outputs: list[str], exam: Exam) -> Judged:
    """Judge a system's translations by every metric, with a progress bar."""
    from heedful.metrics import judge

    with counting(f"scoring {name}", len(outputs)) as count:
        return judge(outputs, [row.references for row in exam.rows], watch=count)


def save_answers(path: Path, exam: Exam, outputs: Sequence[str]) -> None:
    """Write translations, a line for each line of the exam: where nothing was measured it is blank."""
    from heedful.disk import write_whole

    lines = iter(outputs)
    text = "".join(f"{one_line(next(lines)) if row.whole else ''}\n" for row in exam.lines)
    write_whole(path, text.encode())


def can_be_written(option: str, path: Path | None, ending: str = "") -> None:
    """Refuse a file that could not be written, before the work for it is done."""
    if path is None:
        return
    if ending and path.suffix.lower() != ending:
        raise ConfigError(f"{option} {path}: the page is written as {ending}; choose a name that ends with it")
    if path.is_dir() or not path.parent.is_dir():
        what = "this is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise ConfigError(f"{option} {path}: {what}; choose another name")
    if not os.access(path.parent, os.W_OK):
        raise ConfigError(f"{option} {path}: no permission to write to {path.parent}; choose another folder")


def _refuse_idle(systems: Sequence[Path], asking: Asking) -> None:
    """Refuse ways to translate where nothing is translated."""
    from heedful.decoding import Decoding

    given = {}
    for mine, plain in ((asking.how, Decoding()), (asking, Asking(Decoding()))):
        for field in fields(mine):
            if field.name != "how":
                option = f"--{field.name.replace('_', '-')}"
                given[option] = getattr(mine, field.name) != getattr(plain, field.name)
    what = "is a file of translations" if len(systems) == 1 else "are files of translations"
    refuse_idle(f"where {' and '.join(map(str, systems))} {what}", given)


def _is_file(path: Path) -> bool:
    return str(path) == "-" or path.is_file()


def _check_exists(path: Path) -> None:
    if not path.exists() and str(path) != "-" and not str(path).startswith("hf:"):
        raise DataError(f"{path}: there is no such model folder, nor such a file of translations")


def _from_file(path: Path, exam: Exam) -> list[str]:
    from heedful.data.files import called, read_lines

    reading = read_lines(path)
    lines = list(islice(reading, len(exam.lines)))
    if (count := len(lines) + sum(1 for _ in reading)) != len(exam.lines):  # the rest is counted, and not kept
        raise DataError(
            f"{called(path)} has {count:,} lines but {exam.name} has {len(exam.lines):,}; "
            "translations need a line for each line of the test set, blank ones too"
        )
    return [line.strip() for line, row in zip(lines, exam.lines, strict=True) if row.whole]


def _from_model(path: Path, exam: Exam, asking: Asking, others: list[str] | None, options: Sequence[str]) -> list[str]:
    translator = opened(path, others, asking.device, asking.threads, links=False)
    pairs = [(row.source, row.references[0]) for row in exam.rows]
    refuse_wrong_way(path, translator, pairs, exam.columns if "columns" in options else None)
    sources = [row.source for row in exam.rows]
    if not asking.threads:
        translator.choose_threads(sources, asking.how)
    done = []
    with counting(f"translating with {path}", len(sources)) as count:
        for first in range(0, len(sources), CHUNK):
            done += translator.translate(
                sources[first : first + CHUNK],
                asking.how,
                split=False,
                copy_unknown=asking.copy_unknown,
                trace=False,
                batch_tokens=asking.batch_tokens,
            )
            count(len(done) - first)
    notes, each = Notes("max_length" in options), iter(done)
    for row in exam.lines:
        notes.add(next(each).notes if row.whole else ())
    notes.say()
    return [translation.text for translation in done]
