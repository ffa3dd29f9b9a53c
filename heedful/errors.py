"""Every error that heedful raises on purpose.

```
HeedfulError             the root: catch this to catch them all
├── DataError            sentence pairs that cannot be read: the file, the line, what was expected
├── ConfigError          an unknown setting, or a value that is not allowed
├── ModelError           a folder that is not a model, or not a whole one
├── ShapeError           tensors that do not fit together
└── MachineError         not the user's mistake: the machine or the numbers gave way
    ├── DiskError          a file could not be written
    ├── DeviceMemoryError  the device ran out of memory
    ├── NotFiniteError     the loss became infinite or not a number
    └── WorkerError        another process of the same run has died
```

On the command line a `MachineError` exits with 1 and every other one with 2.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "ConfigError",
    "DataError",
    "DeviceMemoryError",
    "DiskError",
    "HeedfulError",
    "MachineError",
    "ModelError",
    "NotFiniteError",
    "ShapeError",
    "WorkerError",
    "choose",
    "nearest",
]


class HeedfulError(Exception):
    """The root of all errors that heedful raises on purpose; its text is written for a person."""

    exit_code = 2
    told = False  # by another process of the same run


class DataError(HeedfulError):
    """Sentence pairs that cannot be read."""


class ConfigError(HeedfulError):
    """An unknown setting, or a value that is not allowed."""


class ModelError(HeedfulError):
    """A folder that is not a model, or not a whole one."""


class ShapeError(HeedfulError):
    """Tensors that do not fit together."""


class MachineError(HeedfulError):
    """Not the user's mistake: the machine or the numbers gave way."""

    exit_code = 1


class DiskError(MachineError):
    """A file could not be written."""


class DeviceMemoryError(MachineError):
    """The device ran out of memory."""


class NotFiniteError(MachineError):
    """The loss became infinite or not a number."""


class WorkerError(MachineError):
    """Another process of the same run has died."""


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return a sentence with the allowed word most like `word`, or nothing.

    >>> nearest("addative", ["additive", "dot"])
    " Did you mean 'additive'?"
    >>> nearest("zzz", ["additive", "dot"])
    ''
    """
    found = difflib.get_close_matches(word.lower(), list(allowed), n=1, cutoff=0.5)
    return f" Did you mean '{found[0]}'?" if found else ""


def choose(what: str, word: str, allowed: Iterable[str]) -> str:
    """Return `word` if it is allowed; otherwise say what is, with the nearest guess.

    >>> choose("score", "dot", ["additive", "dot"])
    'dot'
    """
    allowed = tuple(allowed)
    if word not in allowed:
        allowed = sorted(allowed)
        raise ConfigError(f"unknown {what} '{word}'; choose one of {', '.join(allowed)}.{nearest(str(word), allowed)}")
    return word
