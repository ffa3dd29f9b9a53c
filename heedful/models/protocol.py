"""What every model is to the rest of the library: `encode`, `start`, `step`, `logits`, and the records between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

from torch import Tensor

__all__ = ["Look", "Memory", "Seq2Seq", "State", "Step"]


@dataclass(frozen=True)
class Memory:
    """What is looked at: h (B, S, D) and keep (B, S), with what was worked out of it once and for all.

    `keys` are the keys of each attention; `last` are the encoder's last states h(T), bottom layer first. Everything is
    batch first, so that rows can be selected.
    """

    h: Tensor
    keep: Tensor
    keys: tuple[Tensor, ...] = ()
    last: tuple[Tensor, ...] = ()

    def select(self, rows: Tensor) -> Memory:
        """Return the memory of some sentences, in the order of `rows`."""
        return Memory(
            self.h[rows], self.keep[rows], tuple(k[rows] for k in self.keys), tuple(s[rows] for s in self.last)
        )


class State(Protocol):
    """What is remembered between steps. It is consumed by `step`, which returns the next one."""

    def select(self, rows: Tensor) -> Self:
        """Return the state of some sentences, in the order of `rows`: all that a beam needs."""
        ...


@dataclass(frozen=True)
class Look:
    """A wish to be told the weights: without it, `step` returns none and keeps none."""


class Step(NamedTuple):
    """What a step gives: hidden (B, n, …) for `logits`, the next state, and weights (B, L, H, n, S) if asked for.

    `weights` is None when not asked for, and for a model that has nothing to look at.
    """

    hidden: Tensor
    state: State
    weights: Tensor | None


class Seq2Seq(Protocol):
    """One protocol for every model. One step of T tokens equals T steps of one token, to rounding."""

    def encode(self, x: Tensor, keep: Tensor) -> Memory:
        """Read the source.  x (B, S), keep (B, S) with the padding on the right -> Memory."""
        ...

    def start(self, memory: Memory, capacity: int) -> State:
        """Return the state before the first token; at most `capacity` tokens will follow."""
        ...

    def step(self, y: Tensor, state: State, memory: Memory, look: Look | None = None) -> Step:
        """Read n target tokens.  y (B, n): n = 1 while decoding, n = T for teacher forcing or a forced prefix."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the scores of all words of the vocabulary.  hidden (…, D) -> (…, V)."""
        ...
