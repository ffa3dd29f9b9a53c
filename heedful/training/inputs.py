"""Where a run's sentence pairs come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from heedful.data import Pair, Pairs, parse_columns, read_parallel, read_tsv
from heedful.errors import DataError

__all__ = ["Inputs", "in_memory"]

SIDES = ("source", "target", "valid")


@dataclass(frozen=True)
class Inputs:
    """Where sentence pairs come from: TSV files with columns, or two parallel files; and a TSV file for validation."""

    pairs: tuple[str, ...] = ()
    columns: str = "1,2"
    source: str | None = None
    target: str | None = None
    valid: str | None = None

    def read(self) -> tuple[Pairs, Pairs | None]:
        """Read the pairs to learn from and, if given, those for validation."""
        columns = parse_columns(self.columns)
        if self.source and self.target:
            found = read_parallel(Path(self.source), Path(self.target))
        else:
            found = read_tsv([Path(p) for p in self.pairs], columns)
        return found, read_tsv([Path(self.valid)], columns) if self.valid else None

    def absolute(self) -> dict[str, Any]:
        """Return the inputs with full paths, for the record."""
        sides = {name: path and str(Path(path).resolve()) for name, path in asdict(self).items() if name in SIDES}
        return {"pairs": [str(Path(p).resolve()) for p in self.pairs], "columns": self.columns, **sides}


def in_memory(pairs: Sequence[tuple[str, str]]) -> Pairs:
    """Take pairs as they are; those with an empty side are counted and left out."""
    found = []
    for number, pair in enumerate(pairs, 1):
        if len(pair) != 2 or not all(isinstance(side, str) for side in pair):
            raise DataError(f"pair {number} is {pair!r}, expected two strings: a sentence and its translation")
        found.append(Pair(pair[0].strip(), pair[1].strip(), f"pair {number}"))
    whole = [p for p in found if p.source and p.target]
    if not whole:
        raise DataError("there are no sentence pairs with both a source and a target")
    return Pairs(whole, half=len(found) - len(whole))
