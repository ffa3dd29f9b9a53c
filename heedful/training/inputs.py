"""Where a run's sentence pairs come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from heedful.data import PairFile, PairList
from heedful.errors import ConfigError

__all__ = ["Inputs"]


@dataclass(frozen=True)
class Inputs:
    """The sentence pairs to learn from and, if given, those for validation; `strict`: all must be clean already."""

    training: tuple[PairFile | PairList, ...]
    valid: tuple[PairFile | PairList, ...] = ()
    strict: bool = False

    def __post_init__(self) -> None:
        paths = [path for file in self._files() for path in (file.path, file.target)]
        if paths.count("-") > 1:
            raise ConfigError("standard input (-) can be read only once; put one of the two into a file")

    @property
    def piped(self) -> bool:
        """Whether something comes from standard input."""
        return any("-" in (file.path, file.target) for file in self._files())

    def absolute(self) -> dict[str, Any]:
        """Return the inputs with full paths, for the record; nothing for pairs in memory."""
        if len(self._files()) < len(self.training) + len(self.valid):
            return {}
        sides = {"training": self.training, "valid": self.valid}
        return {side: [asdict(_absolute(f)) for f in files if isinstance(f, PairFile)] for side, files in sides.items()}

    @classmethod
    def recorded(cls, record: Mapping[str, Any]) -> Inputs | None:
        """Return the inputs that a record is of, if it is of files."""
        if not record.get("training"):
            return None
        training, valid = (tuple(PairFile(**file) for file in record[side]) for side in ("training", "valid"))
        return cls(training, valid)

    def _files(self) -> list[PairFile]:
        return [file for file in (*self.training, *self.valid) if isinstance(file, PairFile)]


def _absolute(file: PairFile) -> PairFile:
    path, target = (side if side in ("", "-") else str(Path(side).resolve()) for side in (file.path, file.target))
    return replace(file, path=path, target=target)
