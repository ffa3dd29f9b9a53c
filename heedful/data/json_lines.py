"""Cells from JSON lines: an object a line, with named fields."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any

from heedful.bounded import check_depth
from heedful.data.columns import find, guess, no_guess, positions, some
from heedful.data.files import BOM, called, raw_lines
from heedful.errors import DataError

__all__ = ["json_cells"]


def json_cells(path: Path, wanted: Sequence[str], say: Callable[[str], None]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the number of each line and the fields that are wanted; without names, the first line tells which.

    The fields may stand in an object inside, as in `{"translation": {"en": …, "hi": …}}`.
    """
    name, outer, names = called(path), "", tuple(wanted)
    pick, nothing = None, ("",) * max(2, len(names))
    for number, line in enumerate(raw_lines(path), 1):
        if line.startswith(BOM):
            say("a byte order mark taken off")
        line = line.removeprefix(BOM).strip()
        if not line:
            yield number, nothing
            continue
        where = f"{name}, line {number}"
        record = _object(line, where, first=pick is None)
        if pick is None:
            outer, names = _choose(record, wanted, where)
            pick = itemgetter(*names)
        if outer:
            record = record.get(outer)
        try:
            cells = pick(record)
        except (KeyError, TypeError):
            raise _missing(record, outer, names, where) from None
        for field, cell in zip(names, cells, strict=True):
            if not isinstance(cell, str):
                if cell is not None:
                    raise DataError(f"{where}: field '{field}' is {_short(json.dumps(cell))}, expected a string")
                cells = tuple("" if c is None else c for c in cells)
            elif "\\u" in line:
                _refuse_surrogates(cell, field, where)
        yield number, cells


def _object(line: str, where: str, first: bool) -> Any:  # noqa: ANN401  (what JSON holds)
    if first and re.match(r"\[\s*(\{|\[|$)", line):
        raise DataError(
            f"{where}: this is one list of all pairs, expected an object on each line; jq -c '.[]' makes these of it"
        )
    try:
        record = json.loads(line)
        check_depth(record)
    except (ValueError, RecursionError) as error:
        reason = (
            f"{error.msg}, column {error.colno}"
            if isinstance(error, json.JSONDecodeError)
            else str(error) or "nested too deeply"
        )
        more = "; expected an object on each line" if first else ""
        raise DataError(f"{where}: this is not JSON ({reason}): '{_short(line)}'{more}") from None
    if not isinstance(record, dict):
        raise DataError(f'{where}: expected an object such as {{"source": "…", "target": "…"}}, found: {_short(line)}')
    return record


def _choose(record: dict[str, Any], wanted: Sequence[str], where: str) -> tuple[str, tuple[str, ...]]:
    """Return the field in which the object with the names stands, if not the record itself, and the names."""
    inside = {"": record, **{key: value for key, value in record.items() if isinstance(value, dict)}}
    levels = {
        outer: [key for key, value in fields.items() if value is None or isinstance(value, str)]
        for outer, fields in inside.items()
    }
    if wanted:
        for outer, fields in inside.items():
            if all(name in fields for name in wanted):
                return outer, tuple(wanted)
        names = list(dict.fromkeys(chain.from_iterable(inside.values())))
        if positions(wanted):
            raise DataError(f"{where}: fields have names, not numbers: {some(names)}; give two of them to --columns")
        find(names, wanted, where, "field")
        raise DataError(f"{where}: the fields {' and '.join(wanted)} do not stand in one object")
    for outer, names in levels.items():
        if (found := guess(names)) is not None:
            return outer, (names[found[0]], names[found[1]])
    names = list(dict.fromkeys(chain.from_iterable(levels.values())))
    raise no_guess(names, where, "fields") if names else DataError(f"{where}: no field holds a string")


def _missing(record: Any, outer: str, names: Sequence[str], where: str) -> DataError:  # noqa: ANN401
    if not isinstance(record, dict):
        return DataError(f"{where}: field '{outer}' holds no object, expected one with the fields {', '.join(names)}")
    missing = next(name for name in names if name not in record)
    return DataError(f"{where}: there is no field '{missing}', only {some(list(record)) or 'an empty object'}")


def _refuse_surrogates(cell: str, field: str, where: str) -> None:
    """Refuse half a character, which JSON can write as an escape but no file in UTF-8 can hold."""
    try:
        cell.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(cell[error.start]):04x}"
        raise DataError(f"{where}: field '{field}' holds {half}, half of a character, which is not text") from None


def _short(text: str, length: int = 60) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
