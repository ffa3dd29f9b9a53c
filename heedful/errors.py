"""The errors of heedful, and helpers for their messages.

```
HeedfulError             the root of all
├── DataError            sentence pairs that cannot be read
├── ConfigError          an unknown setting, or a value that is not allowed
│   └── ArgumentError      an unknown keyword argument; also a TypeError
├── ModelError           a folder that is not a model, or is damaged
│   └── NewerFormatError   a model in a format of a newer heedful
├── ShapeError           tensors whose shapes do not match
└── MachineError         not the user's mistake: a failure of the machine or of the numbers
    ├── DiskError          a file could not be written
    ├── DeviceMemoryError  the device ran out of memory
    ├── NotFiniteError     the loss, or a model's output, is infinite or not a number
    └── WorkerError        a worker process, or another process of the same run, has died
```

On the command line a `MachineError` exits with 1 and every other error with 2.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from types import UnionType
from typing import Any, ParamSpec, Protocol, TypeVar

__all__ = [
    "ArgumentError",
    "ConfigError",
    "DataError",
    "DeviceMemoryError",
    "DiskError",
    "HeedfulError",
    "MachineError",
    "ModelError",
    "NewerFormatError",
    "NotFiniteError",
    "ShapeError",
    "Shaped",
    "WorkerError",
    "__version__",
    "check_shapes",
    "check_value",
    "choose",
    "closest",
    "escape_json",
    "foreign",
    "install_command",
    "known_arguments",
    "nearest",
    "pip_command",
    "printable",
    "suggest_keywords",
]

# C0 without tab and newline, DEL, C1; line and paragraph separators; bidi embeddings, overrides and isolates; lone
# surrogates, such as the undecodable bytes of a file name. The marks U+200E, U+200F and U+061C stay: right-to-left
# text needs them. Joiners stay: scripts and emoji are written with them.
CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
UNSAFE = re.compile(f"[{CONTROL}]")
UNSAFE_LINE = re.compile(f"[{CONTROL}\n]")


def printable(text: str, newlines: bool = True) -> str:
    r"""Return a text with control characters as escapes, `\x1b` or `\u202e`.

    Tabs stay, and line breaks unless `newlines` is False. All other text, in any script and direction, is unchanged.

    >>> printable("a\x1b[31mb"), printable("one\ntwo", newlines=False), printable("שלום")
    ('a\\x1b[31mb', 'one\\ntwo', 'שלום')
    """
    return (UNSAFE if newlines else UNSAFE_LINE).sub(_escape, text)


def escape_json(text: str) -> str:
    r"""Return JSON with control characters in its strings as `\u` escapes: the same value, safe to print.

    >>> escape_json('"\x9b"')
    '"\\u009b"'
    """
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(match: re.Match[str]) -> str:
    if match[0] in "\n\r":
        return "\\n" if match[0] == "\n" else "\\r"
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


__version__ = "0.1.0"

_P = ParamSpec("_P")
_R = TypeVar("_R")


class HeedfulError(Exception):
    r"""The root of all errors of heedful.

    The message may quote data, such as the name of a file. Control characters in it are escaped, so that a traceback
    cannot control a terminal; line breaks stay.

    >>> str(HeedfulError("pairs\x1b[2J.tsv"))
    'pairs\\x1b[2J.tsv'
    """

    exit_code = 2
    reported = False  # by another process of the same run
    multiline = False  # whether the message has line breaks of its own, besides those of quoted data

    def __str__(self) -> str:
        return printable(super().__str__())


class DataError(HeedfulError):
    """Sentence pairs that cannot be read."""


class ConfigError(HeedfulError):
    """An unknown setting, or a value that is not allowed."""


class ArgumentError(ConfigError, TypeError):
    """An unknown keyword argument."""


class ModelError(HeedfulError):
    """A folder that is not a model, or is damaged."""


class NewerFormatError(ModelError):
    """A model or checkpoint in a format of a newer heedful: it is not damaged, and must not be overwritten."""


class ShapeError(HeedfulError):
    """Tensors whose shapes do not match."""


class MachineError(HeedfulError):
    """Not the user's mistake: a failure of the machine or of the numbers."""

    exit_code = 1


class DiskError(MachineError):
    """A file could not be written."""


class DeviceMemoryError(MachineError):
    """The device ran out of memory."""


class NotFiniteError(MachineError):
    """The loss, or a model's output, is infinite or not a number."""


class WorkerError(MachineError):
    """A worker process, or another process of the same run, has died."""


def nearest(word: str, allowed: Iterable[str]) -> str:
    """Return a question with the allowed word most like `word`, or "".

    >>> nearest("addative", ["additive", "dot"])
    " Did you mean 'additive'?"
    >>> nearest("zzz", ["additive", "dot"])
    ''
    """
    guess = closest(word, list(allowed), 0.5)
    return f" Did you mean '{guess}'?" if guess else ""


def closest(word: str, allowed: Sequence[str], cutoff: float = 0.65) -> str:
    """Return the allowed word for a name of other libraries, or the one most like `word`, or ""."""
    if (same := ELSEWHERE.get(word.lower())) in allowed:
        return str(same)
    return next(iter(difflib.get_close_matches(word.lower(), allowed, n=1, cutoff=cutoff)), "")


def choose(what: str, word: str, allowed: Iterable[str]) -> str:
    """Return `word` if it is allowed; otherwise raise ConfigError with the allowed words and a guess.

    >>> choose("score", "dot", ["additive", "dot"])
    'dot'
    """
    allowed = tuple(allowed)
    if word not in allowed:
        allowed = sorted(allowed)
        shown = str(word)[:100]
        raise ConfigError(f"unknown {what} '{shown}'; choose one of {', '.join(allowed)}.{nearest(shown, allowed)}")
    return word


def check_value(name: str, value: object, kind: type | UnionType, holds: Callable[[Any], bool], expected: str) -> None:
    """Raise ConfigError unless a value is of a kind and `holds`. True and False are no numbers.

    >>> check_value("beam", 0, int, lambda beam: beam > 0, "a whole number from 1")
    Traceback (most recent call last):
    heedful.errors.ConfigError: beam is 0, expected a whole number from 1
    """
    if isinstance(value, bool) is not (kind is bool) or not isinstance(value, kind) or not holds(value):
        raise ConfigError(f"{name} is {value!r}, expected {expected}")


class Shaped(Protocol):
    """Anything with a shape: a tensor or an array."""

    @property
    def shape(self) -> Sequence[int]:
        """The sizes of its axes."""
        ...


def check_shapes(**tensors: tuple[Shaped, str]) -> dict[str, int]:
    """Check that tensors have the axes named for them and return each letter's size.

    >>> import numpy as np
    >>> check_shapes(q=(np.zeros((2, 3, 4)), "B T A"), k=(np.zeros((2, 5, 4)), "B S A"))
    {'B': 2, 'T': 3, 'A': 4, 'S': 5}
    >>> check_shapes(q=(np.zeros((2, 3, 4)), "B T A"), k=(np.zeros((2, 5, 6)), "B S A"))
    Traceback (most recent call last):
    heedful.errors.ShapeError: k has shape (2, 5, 6), expected (B=2, S, A=4): A is 6 here but 4 in q
    """
    sizes: dict[str, int] = {}
    first: dict[str, str] = {}
    for name, (tensor, axes) in tensors.items():
        letters, shape = axes.split(), tensor.shape
        problem = "" if len(letters) == len(shape) else f"{len(letters)} axes, not {len(shape)}"
        for letter, size in zip(letters, shape, strict=False):
            if sizes.setdefault(letter, size) != size and not problem:
                problem = f"{letter} is {size} here but {sizes[letter]} in {first[letter]}"
            first.setdefault(letter, name)
        if problem:
            wanted = ", ".join(f"{a}={sizes[a]}" if first.get(a, name) != name else a for a in letters)
            raise ShapeError(f"{name} has shape {tuple(shape)}, expected ({wanted}): {problem}")
    return sizes


@contextmanager
def foreign(what: str, error: type[HeedfulError] = ModelError) -> Iterator[None]:
    """Turn any error of a compiled library into `error` with the message "what: reason".

    A panic of Rust code is a `BaseException`, which `except Exception` does not catch. Heedful's own errors,
    MemoryError and requests to stop pass unchanged.

    >>> with foreign("the tokenizer cannot read this text"):
    ...     raise RuntimeError("index out of bounds")
    Traceback (most recent call last):
    heedful.errors.ModelError: the tokenizer cannot read this text: index out of bounds
    """
    try:
        yield
    except (HeedfulError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as raised:
        reason = next(iter(str(raised).splitlines()), "") or type(raised).__name__
        raise error(f"{what}: {reason:.400}") from None


# Names of other libraries, and heedful's for the same.
ELSEWHERE = {
    "lr": "rate",
    "learning_rate": "rate",
    "epochs": "steps",
    "max_steps": "steps",
    "num_epochs": "steps",
    "batch_size": "batch_tokens",
    "hidden_size": "width",
    "d_model": "width",
    "num_layers": "layers",
    "num_heads": "heads",
    "nhead": "heads",
    "warmup_steps": "warmup",
    "num_beams": "beam",
    "beam_size": "beam",
    "num_return_sequences": "n_best",
    "num_threads": "threads",
    "watch": "callback",  # its name in earlier versions of heedful
    "gpu": "cuda",
}


def known_arguments(function: str, names: Iterable[str], allowed: Iterable[str]) -> None:
    """Raise ArgumentError for the first keyword argument that a function does not have, with a guess.

    >>> known_arguments("translate", ["beams"], ["beam", "n_best"])
    Traceback (most recent call last):
    heedful.errors.ArgumentError: translate: unknown argument 'beams'; did you mean 'beam'?
    >>> known_arguments("train", ["lr"], ["rate", "steps"])
    Traceback (most recent call last):
    heedful.errors.ArgumentError: train: unknown argument 'lr'; did you mean 'rate'?
    """
    allowed = sorted(allowed)
    for name in names:
        if name not in allowed:
            guess = closest(name, allowed)
            hint = f"did you mean '{guess}'?" if guess else f"choose from {', '.join(allowed)}"
            raise ArgumentError(f"{function}: unknown argument '{name}'; {hint}")


def suggest_keywords(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a function raise ArgumentError, with a guess, for a keyword argument that it does not have.

    >>> @suggest_keywords
    ... def load(path, *, threads=0): ...
    >>> load("m", thread=2)
    Traceback (most recent call last):
    heedful.errors.ArgumentError: load: unknown argument 'thread'; did you mean 'threads'?
    """
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    called = function.__qualname__.removesuffix(".__init__").rpartition("<locals>.")[2]

    @functools.wraps(function)
    def call(*args: _P.args, **keywords: _P.kwargs) -> _R:
        known_arguments(called, keywords, names)
        return function(*args, **keywords)

    return call


def pip_command() -> str:
    """Return the command of the pip of this Python: `pip`, `.venv/bin/pip`, or `python -m pip` with a path."""
    pip = Path(sys.executable).parent / "pip"
    if shutil.which("pip") == str(pip):
        return "pip"
    if not pip.exists():
        return f"{quote(_short(Path(sys.executable)))} -m pip"
    return quote(_short(pip))


def install_command(extra: str) -> str:
    """Return the command that installs an extra, such as serve, of a checkout of heedful or of the package."""
    root = Path(__file__).resolve().parent.parent
    name = _short(root) if (root / "pyproject.toml").is_file() else "heedful"
    return f"{pip_command()} install {quote(f'{name}[{extra}]')}"


def _short(path: Path) -> str:
    """Return a path relative to the current folder, beginning with `.`, if it is inside."""
    try:
        relative = str(path.relative_to(os.getcwd()))
    except (ValueError, OSError):
        return str(path)
    return relative if relative == "." or relative.startswith(".venv") else f".{os.sep}{relative}"
