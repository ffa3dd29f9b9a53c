"""Checks of records read from JSON; errors say where something is missing or wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heedful.errors import DataError

if TYPE_CHECKING:
    from heedful.trace.trace import Text


ROUNDING = 0.05  # tolerance of sums: long rows of four digits each, or weights of 16 bits


def field_of(plain: object, name: str, where: str = "") -> Any:  # noqa: ANN401  (JSON may hold anything)
    """Return the value of a key of a JSON object; `where` is the prefix of error messages."""
    if not isinstance(plain, Mapping):
        raise DataError(f"{where}expected an object with {name!r}, found {_short(plain)}")
    if name not in plain:
        raise DataError(f"{where}it has no {name!r}")
    return plain[name]


def listed(value: object, where: str, size: int = 0) -> list[Any]:
    """Return a list, of `size` items if that is not 0."""
    if not isinstance(value, list | tuple) or (size and len(value) != size):
        raise DataError(f"{where}: expected a list{f' of {size}' if size else ''}, found {_short(value)}")
    return list(value)


def whole_number(value: object, where: str) -> int:
    """Return an integer."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise DataError(f"{where}: {_short(value)} is no whole number")
    return value


def whole_numbers(value: object, where: str, size: int) -> list[int]:
    """Return a list of `size` integers."""
    return [whole_number(one, where) for one in listed(value, where, size)]


def number(value: object, where: str) -> float:
    """Return a number as a float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"{where}: {_short(value)} is no number")
    try:
        return float(value)
    except OverflowError:
        raise DataError(f"{where}: {_short(value)} is too large") from None


def truth(value: object, where: str) -> bool:
    """Return a boolean."""
    if not isinstance(value, bool):
        raise DataError(f"{where}: {_short(value)} is neither true nor false")
    return value


def numbering(value: object, where: str, count: int, chosen: tuple[int, ...]) -> tuple[int, ...]:
    """Return the numbers of `count` layers or heads; if they are missing, a single one is the one chosen."""
    if value is None:
        return chosen if count == len(chosen) == 1 else ()
    own = tuple(whole_numbers(value, where, count)) if count else ()
    if own and (own[0] < 1 or list(own) != sorted(set(own))):
        raise DataError(f"{where}: {_short(value)} are not numbers from 1 on, each larger than the one before")
    return own


def numbers(value: object, where: str, tokens: tuple[int, int] | None = None) -> NDArray[np.float32]:
    """Return nested lists of finite numbers as an array; lists of one level have to be of the same length.

    `tokens` are the expected numbers of target and source tokens, for error messages.
    """
    flat = [value]
    while any(isinstance(one, list | tuple) for one in flat):
        flat = [each for one in flat for each in (one if isinstance(one, list | tuple) else [one])]
    for one in flat:
        number(one, where)
    try:
        with np.errstate(over="ignore"):  # checked below
            array = np.asarray(value, dtype=np.float32)
    except ValueError:
        raise DataError(f"{where}: {_uneven(value, tokens) or 'its rows are not of the same length'}") from None
    if not array.ndim and not np.isfinite(array):
        raise DataError(f"{where}: {array} is not finite, but all must be")
    if not np.isfinite(array).all():
        at = np.argwhere(~np.isfinite(array))[0]
        names = ("layer", "head", "row", "column")[-len(at) :] if len(at) > 1 else ("place",)
        raise DataError(f"{where}: {array[tuple(at)]} at {_place(names, at.tolist())} is not finite, but all must be")
    return array


def _uneven(value: object, tokens: tuple[int, int] | None) -> str:
    """Return which list of weights, (L, H, T, S) or its last axes, has a wrong length; "" for other lists."""
    lists: list[tuple[str, Any]] = [("", value)]
    depth, deepest = 0, value
    while isinstance(deepest, list | tuple) and deepest:
        depth, deepest = depth + 1, deepest[0]
    names = ("layer", "head", "row", "number")[-depth:]
    if tokens is None or not 2 <= depth <= 4:
        return ""
    sizes = {"row": (tokens[0], "there are {} target tokens"), "number": (tokens[1], "there are {} source tokens")}
    for name in names:
        if any(not isinstance(one, list | tuple) for _, one in lists):
            return ""
        first = (len(lists[0][1]), f"{lists[0][0]} has {{}}")
        wanted, why = sizes.get(name, first)
        for place, one in lists:
            if len(one) != wanted:
                has = f"{place or 'it'} has {len(one)} {name}{'s' * (len(one) != 1)}"
                return f"{has}, but {why.format(wanted)}"
        lists = [(f"{at}, {name} {i}".lstrip(", "), each) for at, one in lists for i, each in enumerate(one, 1)]
    return ""


def check_text(text: Text, where: str) -> None:
    """Raise DataError for spans outside of a text, and for words whose tokens are missing or out of order."""
    T, length = len(text.tokens), len(text.text)
    if not T or not text.words:
        raise DataError(f"{where}it has no {'words' if T else 'tokens'}; there is always '</s>'")
    if len(text.spans) != T:
        raise DataError(f"{where}{T} tokens have {len(text.spans)} spans")
    places = [("token", i, *span) for i, span in enumerate(text.spans, 1)]
    places += [("word", i, word.start, word.end) for i, word in enumerate(text.words, 1)]
    for what, i, start, end in places:
        if not 0 <= start <= end <= length:
            span = f"{start!s:.20} to {end!s:.20}"
            raise DataError(f"{where}{what} {i} has the characters {span} of a text that has {length}")
    before = 0
    for i, word in enumerate(text.words, 1):
        if not 0 <= word.first <= word.last <= T:
            span = f"{word.first!s:.20} to {word.last!s:.20}"
            raise DataError(f"{where}word {i}, {word.text!r:.60}, has the tokens {span} of {T}")
        if word.first < before:
            raise DataError(f"{where}word {i}, {word.text!r}, begins at token {word.first}, before the last one ends")
        before = word.last


def check_shapes(
    weights: NDArray[np.float32] | None,
    read: NDArray[np.float32] | None,
    log_probs: NDArray[np.float32],
    tokens: tuple[int, int],
) -> None:
    """Raise DataError for wrong shapes: weights (L, H, T, S), read (T, S), log_probs (T,); tokens are (T, S)."""
    T, S = tokens
    have = f"but there are {T} target and {S} source tokens"
    for name, array, axes in (("weights", weights, 4), ("read", read, 2)):
        if array is None:
            continue
        if array.ndim != axes or 0 in array.shape:
            wanted = "layers, heads, target tokens, source tokens" if axes == 4 else "target tokens, source tokens"
            raise DataError(f"{name}: expected lists in {axes} levels ({wanted}), found {_sizes(array)}")
        if array.shape[-2:] != (T, S):
            raise DataError(f"{name}: they are of {array.shape[-2]} target and {array.shape[-1]} source tokens, {have}")
    if log_probs.shape != (T,):
        raise DataError(f"log_probs: expected a number for each of the {T} target tokens, found {_sizes(log_probs)}")


def beside(value: object, name: str, shape: tuple[int, int, int]) -> NDArray[np.float32] | None:
    """Return `after` or `norms`, (L, H, S), a number for each source token of each head; None for None."""
    if value is None:
        return None
    array = numbers(value, name)
    if array.shape != shape:
        wanted = " × ".join(map(str, shape))
        raise DataError(f"{name}: expected {wanted} numbers (layers, heads, source tokens), found {_sizes(array)}")
    if (array < 0).any():
        raise DataError(f"{name}: {float(array.min()):g} is negative")
    return array


def _sizes(array: NDArray[np.float32]) -> str:
    return "one number" if not array.ndim else " × ".join(map(str, array.shape))


def check_rows(weights: NDArray[np.float32], name: str, whole: bool) -> None:
    """Raise DataError for what cannot be weights, (…, T, S): a negative one, or a row that sums to more than 1.

    With `whole`, every row sums to 1, or to 0 where nothing is attended to. A mean over heads weighted by norms may sum
    to anything in between.
    """
    sums = weights.sum(-1)
    wrong = (sums > 1 + ROUNDING) | (weights < -ROUNDING / 1000).any(-1)
    if whole:
        wrong |= (sums > ROUNDING) & (sums < 1 - ROUNDING)
    if wrong.any():
        at = np.argwhere(wrong)[0]
        place = _place(("layer", "head", "row")[-len(at) :], at.tolist())
        if (least := float(weights[tuple(at)].min())) < 0:
            raise DataError(f"{name}: {least:g} in {place} is negative; weights are from 0 to 1")
        rule = "sums to 1, or to 0 where nothing is attended to" if whole else "sums to 1 at most"
        raise DataError(f"{name}: {place} sums to {float(sums[tuple(at)]):g}; a row of weights {rule}")


def _place(names: Sequence[str], at: Sequence[int]) -> str:
    return ", ".join(f"{what} {i + 1}" for what, i in zip(names, at, strict=True))


def _short(value: object) -> str:
    text = "an object" if isinstance(value, Mapping) else "nothing" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
