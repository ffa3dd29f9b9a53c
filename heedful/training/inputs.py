"""Where a run's sentence pairs come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from heedful.data import PairFile, PairList
from heedful.data.files import check_there
from heedful.errors import ConfigError

__all__ = ["Inputs"]


@dataclass(frozen=True)
class Inputs:
    """The sentence pairs to learn from and, if given, those for validation; `strict`: all must be clean already.

    Without any, they are those of the run that is resumed.
    """

    training: tuple[PairFile | PairList, ...]
    valid: tuple[PairFile | PairList, ...] = ()
    strict: bool = False

    def __post_init__(self) -> None:
        if self._paths().count("-") > 1:
            raise ConfigError("standard input (-) can be read only once; put one of the two into a file")

    @property
    def piped(self) -> bool:
        """Whether something comes from standard input."""
        return "-" in self._paths()

    @property
    def linked(self) -> bool:
        """Whether links between words were given with the pairs to learn from."""
        return any(file.links not in ("", None) for file in self.training)

    @property
    def missing(self) -> list[str]:
        """The files that are not there."""
        return [path for path in self._paths() if path != "-" and not Path(path).exists()]

    def check(self) -> None:
        """Refuse files that are not there, or cannot be opened: the last one is read long after the first."""
        for path in self._paths():
            check_there(Path(path))

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

    def _paths(self) -> list[str]:
        return [path for file in self._files() for path in (file.path, file.target, file.links) if path]

    def _files(self) -> list[PairFile]:
        return [file for file in (*self.training, *self.valid) if isinstance(file, PairFile)]


def _absolute(file: PairFile) -> PairFile:
    given = (file.path, file.target, file.links)
    path, target, links = (name if name in ("", "-") else str(Path(name).resolve()) for name in given)
    return replace(file, path=path, target=target, links=links)
