"""Sentence pairs of a task: what makes two sentences the same, what is kept apart, and the files that are trained on.

A task is written to a folder: `train.tsv` and `valid.tsv` (source, target), `test-NAME.tsv` (source, then one or more
references), and `task.json` with the counts and, for each test set, the rows of which no side is in training.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from heedful.data.files import read_lines
from heedful.errors import DataError
from heedful.files import write_whole

__all__ = [
    "Known",
    "Row",
    "Task",
    "apart",
    "by_hash",
    "key",
    "lines",
    "read_task",
    "rows_of",
    "shares",
    "write_rows",
    "write_task",
]


class Row(NamedTuple):
    """A sentence and its translations: one to learn from, one or more to be measured with."""

    source: str
    references: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """Pairs to learn from, to choose by and to be measured with; `left_out`: what was not learned from, and why."""

    name: str
    training: list[Row]
    validation: list[Row]
    tests: dict[str, list[Row]]
    left_out: dict[str, int] = field(default_factory=dict)


class _Letters(dict[int, str]):
    """What is left of a character: letters, their marks and digits; joiners and the like vanish, others are a space."""

    def __missing__(self, code: int) -> str:
        kind = unicodedata.category(chr(code))
        self[code] = chr(code) if kind[0] in "LMN" else "" if kind == "Cf" else " "
        return self[code]


_LETTERS = _Letters()


def key(text: str) -> str:
    """Return what makes two strings the same sentence: their words, whatever the case, the punctuation and the spaces.

    >>> key("Don't look!"), key("don’t  look.")
    ('don t look', 'don t look')
    """
    words = unicodedata.normalize("NFKC", text).casefold().translate(_LETTERS).split()
    return " ".join(words) or text.strip()


class Known:
    """The sentences of some rows, each side by itself."""

    def __init__(self, rows: Iterable[Row]) -> None:
        found = list(rows)
        self.sources = {key(row.source) for row in found}
        self.targets = {key(text) for row in found for text in row.references}


def shares(row: Row, known: Known) -> bool:
    """Whether a row has a sentence, on either side, that is known."""
    return key(row.source) in known.sources or any(key(text) in known.targets for text in row.references)


def apart(rows: Iterable[Row], known: Known) -> list[Row]:
    """Return the rows of which neither side is known."""
    return [row for row in rows if not shares(row, known)]


def by_hash(texts: Iterable[str]) -> list[str]:
    """Return the keys of texts, each once, in an order that follows from each alone: their hashes'."""
    return sorted({key(text) for text in texts}, key=lambda k: hashlib.sha256(k.encode()).digest())


def lines(path: Path) -> list[str]:
    """Return the lines of a file, plain or with `.gz` at the end of its name."""
    return list(read_lines(path if path.exists() else path.with_name(f"{path.name}.gz")))


def write_task(task: Task, folder: Path) -> dict[str, Any]:
    """Write the files of a task and return what `task.json` holds."""
    folder.mkdir(parents=True, exist_ok=True)
    known = Known(task.training)
    tests = {}
    for name, rows in task.tests.items():
        write_rows(folder / f"test-{name}.tsv", rows)
        tests[name] = {
            "rows": len(rows),
            "references": max(len(row.references) for row in rows),
            "source_in_training": sum(key(row.source) in known.sources for row in rows),
            "target_in_training": sum(any(key(t) in known.targets for t in row.references) for row in rows),
            "apart": [number for number, row in enumerate(rows) if not shares(row, known)],
        }
    write_rows(folder / "train.tsv", task.training)
    write_rows(folder / "valid.tsv", task.validation)
    counts = {"training": len(task.training), "validation": len(task.validation), "left_out": task.left_out}
    record = {"task": task.name, **counts, "tests": tests}
    write_whole(folder / "task.json", (json.dumps(record, indent=1) + "\n").encode())
    return record


def read_task(folder: Path) -> tuple[dict[str, Any], dict[str, list[Row]]]:
    """Return what `task.json` holds, and the rows of all test sets, and of `valid`."""
    try:
        record: dict[str, Any] = json.loads((folder / "task.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"{folder} holds no prepared task; give the folder of the data (--data) to prepare it"
        ) from None
    files = {name: folder / f"test-{name}.tsv" for name in record["tests"]}
    return record, {name: rows_of(path) for name, path in {"valid": folder / "valid.tsv", **files}.items()}


def rows_of(path: Path) -> list[Row]:
    """Read the rows of a file that `write_task` wrote."""
    cells = (line.split("\t") for line in read_lines(path))
    return [Row(source, tuple(filter(None, references))) for source, *references in cells]


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write rows of equal width; a reference that is not there is an empty column."""
    width = max((len(row.references) for row in rows), default=1)
    cells = ([row.source, *row.references, *[""] * (width - len(row.references))] for row in rows)
    text = "".join("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in cells)
    write_whole(path, text.encode())
