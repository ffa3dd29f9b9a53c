"""Sentence pairs from files: TSV columns or parallel lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from heedful.data.files import read_lines
from heedful.errors import ConfigError, DataError

__all__ = ["Pair", "Pairs", "parallel_rows", "parse_columns", "read_parallel", "read_tsv", "tsv_rows"]


class Pair(NamedTuple):
    """A sentence, its translation, and where they stand."""

    source: str
    target: str
    where: str = ""


@dataclass(frozen=True)
class Pairs:
    """Pairs that were read, and what was passed over: blank lines, and pairs with one empty side."""

    pairs: list[Pair]
    blank: int = 0
    half: int = 0

    def __add__(self, other: Pairs) -> Pairs:
        return Pairs(self.pairs + other.pairs, self.blank + other.blank, self.half + other.half)


def parse_columns(text: str) -> tuple[int, int]:
    """Read the columns of source and target, counted from 1.

    >>> parse_columns("2,1")
    (2, 1)
    """
    parts = text.split(",")
    if len(parts) != 2 or not all(p.strip().isdecimal() and int(p) > 0 for p in parts):
        raise ConfigError(f"columns are '{text}', expected two numbers from 1, source then target, such as 2,1")
    return int(parts[0]), int(parts[1])


def read_tsv(paths: Sequence[Path], columns: tuple[int, int] = (1, 2)) -> Pairs:
    """Read pairs from files with one pair on a line, columns separated by tabs."""
    found = Pairs([])
    for path in paths:
        one = _collect(path.name, tsv_rows(path, columns))
        _refuse_empty(one, str(path))
        found += one
    return found


def read_parallel(source: Path, target: Path) -> Pairs:
    """Read pairs from two files whose lines belong together."""
    found = _collect(source.name, parallel_rows(source, target))
    _refuse_empty(found, f"{source} and {target}")
    return found


def tsv_rows(path: Path, columns: tuple[int, int]) -> Iterator[tuple[int, str, str]]:
    """Yield line number, source and target, nothing for a blank line; all lines have as many columns as the first."""
    width = first = 0
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            yield number, "", ""
            continue
        cells = line.split("\t")
        if not width:
            width, first = max(len(cells), *columns), number
        if len(cells) != width:
            reason = f", as in line {first}" if number != first else ""
            raise DataError(
                f"{path}, line {number}: expected {width} columns separated by a tab{reason}, "
                f"found {len(cells)}: '{_short(line)}'"
            )
        yield number, cells[columns[0] - 1], cells[columns[1] - 1]


def parallel_rows(source: Path, target: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line number, source and target of two files whose lines belong together."""
    number = 0
    rows = zip_longest(read_lines(source), read_lines(target))
    for number, (x, y) in enumerate(rows, 1):
        if x is None or y is None:
            longer, shorter = (target, source) if x is None else (source, target)
            count = number + sum(1 for _ in rows)
            raise DataError(
                f"{shorter} has {number - 1} lines but {longer} has {count}; "
                f"line {number} of {longer} has no partner. Parallel files need the same number of lines"
            )
        yield number, x, y


def _collect(name: str, rows: Iterator[tuple[int, str, str]]) -> Pairs:
    pairs, blank, half = [], 0, 0
    for number, x, y in rows:
        x, y = x.strip(), y.strip()
        if x and y:
            pairs.append(Pair(x, y, f"{name}:{number}"))
        elif x or y:
            half += 1
        else:
            blank += 1
    return Pairs(pairs, blank, half)


def _refuse_empty(found: Pairs, name: str) -> None:
    if found.pairs:
        return
    if found.half:
        raise DataError(f"{name}: no pair has both a source and a target ({found.half} have one empty side)")
    if found.blank:
        raise DataError(f"{name}: only blank lines ({found.blank}), expected sentence pairs")
    raise DataError(f"{name}: the file is empty, expected sentence pairs")


def _short(line: str, length: int = 60) -> str:
    return line if len(line) <= length else line[: length - 1] + "…"
