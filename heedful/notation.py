"""The letters of the papers, as data, and `check` which holds tensors to them at boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from heedful.errors import ShapeError

__all__ = ["AXES", "SYMBOLS", "Shaped", "Symbol", "check", "markdown"]


class Symbol(NamedTuple):
    """One row of the notation table."""

    symbol: str
    code: str
    shape: str
    meaning: str


SYMBOLS = (
    Symbol("x_j", "x", "(B, S)", "source tokens, j = 1..S (or image regions)"),
    Symbol("h_j", "h", "(B, S, D)", "encoder states: what can be looked at"),
    Symbol("s_t", "s", "(B, D)", "decoder state at step t: what is asking"),
    Symbol("q", "q", "(B, T, A)", "the query: the asking state, made comparable"),
    Symbol("k", "k", "(B, S, A)", "the keys the query is compared with"),
    Symbol("values", "values", "(B, S, D)", "what is mixed"),
    Symbol("e_tj", "scores", "(B, T, S)", "how well h_j answers"),
    Symbol("α_tj", "weights", "(B, T, S)", "softmax of the scores over j: each row sums to 1"),
    Symbol("c_t", "context", "(B, T, D)", "Σ_j α_tj h_j"),
    Symbol("y_t", "y", "(B, T)", "target tokens, from `<s>` to `</s>`"),
)

AXES = {
    "B": "batch",
    "S": "source positions",
    "T": "target positions",
    "D": "model width",
    "A": "score width",
    "H": "heads",
    "C": "channels per head",
    "V": "vocabulary",
    "L": "layers",
    "K": "beam width",
}


class Shaped(Protocol):
    """Anything with a shape: a tensor or an array."""

    @property
    def shape(self) -> Sequence[int]:
        """The sizes of its axes."""
        ...


def check(**tensors: tuple[Shaped, str]) -> dict[str, int]:
    """Hold tensors to the axes named for them and return each letter's size.

    >>> import numpy as np
    >>> check(q=(np.zeros((2, 3, 4)), "B T A"), k=(np.zeros((2, 5, 4)), "B S A"))
    {'B': 2, 'T': 3, 'A': 4, 'S': 5}
    >>> check(q=(np.zeros((2, 3, 4)), "B T A"), k=(np.zeros((2, 5, 6)), "B S A"))
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


def markdown() -> str:
    """Return the table as Markdown; `docs/reference/notation.md` is this text."""
    rows = [f"| {s.symbol} | `{s.code}` | {s.shape} | {s.meaning} |" for s in SYMBOLS]
    axes = " · ".join(f"{letter} {meaning}" for letter, meaning in AXES.items())
    return "\n".join(
        [
            "# Notation",
            "",
            "One table for documents and code alike, in the papers' letters. Made by `make docs`;",
            "a test keeps this page and the code the same.",
            "",
            "| symbol | in code | shape | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
            f"Axes: {axes}.",
            "",
            "With heads and layers, the weights of a sentence are (L, H, T, S), and of a batch (B, L, H, T, S).",
            "Masks are named `keep`: **True means may be looked at**, everywhere. A row with nothing to look at",
            "gives zeros, never NaN.",
            "",
        ]
    )
