"""The protocol of all models: `encode`, `start`, `step`, `logits`, and the records between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.errors import ConfigError
from heedful.models.shortlist import Allowed, Scorer


@dataclass(frozen=True)
class Memory:
    """Encoder output h (B, S, D), its mask keep (B, S), and what is computed from it once.

    `keys` are the keys of each attention (and the values, where they are not h); `last` are a recurrent encoder's last
    states h(T), bottom layer first; `weights` (B, L, H, S, S) are those of the encoder's self-attention, if needed.
    Everything is batch first, so that rows can be selected. `padded` is False if there is certainly no padding;
    `zeroed` is True if the keys are certainly 0 there, where otherwise they may be anything, also NaN. `allowed` are
    the tokens that may be decoded, in a model with a shortlist. `unread` is the number of tokens at the end of each
    source that `keep` masks as if they were padding: 1 where `</s>` is not read.
    """

    h: Tensor
    keep: Tensor
    keys: tuple[Tensor, ...] = ()
    last: tuple[Tensor, ...] = ()
    weights: Tensor | None = None
    padded: bool = True
    zeroed: bool = False
    allowed: Allowed | None = None
    unread: int = 0

    def log_probs(self, model: Seq2Seq, hidden: Tensor, some: slice | None = None) -> Tensor:
        """Return the log-probabilities among the `allowed` tokens, where there are such.  (B·K, D) -> (B·K, V).

        `hidden` may be that of `some` sentences side by side. The caller may overwrite what is returned.
        """
        assert self.allowed is not None
        scorer = cast(Scorer, model)  # only models with a shortlist allow some tokens
        return (self.allowed if some is None else self.allowed.part(some, scorer)).log_probs(scorer, hidden)

    def admit(self, prefixes: Sequence[Sequence[int]]) -> None:
        """Allow the tokens that each sentence is told to begin with, whatever a shortlist says, in place."""
        if self.allowed is not None:
            self.allowed.admit(prefixes)

    def select(self, rows: Tensor) -> Memory:
        """Return the memory of some sentences, in the order of `rows`."""
        return Memory(
            self.h[rows],
            self.keep[rows],
            tuple(k[rows] for k in self.keys),
            tuple(s[rows] for s in self.last),
            None if self.weights is None else self.weights[rows],
            self.padded,
            self.zeroed,
            None if self.allowed is None else self.allowed.select(rows),
            self.unread,
        )

    def pad_to(self, S: int) -> Memory:
        """Return the same with S source positions; no sentence may have more tokens."""
        if self.keep.shape[1] == S:
            return self

        def fit(x: Tensor, dim: int) -> Tensor:
            if x.shape[dim] >= S:
                return x.narrow(dim, 0, S).contiguous()
            return F.pad(x, (0,) * (2 * (x.ndim - dim) - 1) + (S - x.shape[dim],))

        # The source is the last axis of keys but one.
        keys = tuple(fit(k, k.ndim - 2) for k in self.keys)
        (h, keep), zeroed = (fit(self.h, 1), fit(self.keep, 1)), self.zeroed
        return Memory(h, keep, keys, self.last, zeroed=zeroed, allowed=self.allowed, unread=self.unread)

    def join(self, other: Memory) -> Memory:
        """Return the sentences of both, these first; both have the same number of positions."""

        def both(ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(torch.cat(pair) for pair in zip(ours, theirs, strict=True))

        (h, keep), keys = both((self.h, self.keep), (other.h, other.keep)), both(self.keys, other.keys)
        allowed = self.allowed.join(other.allowed) if self.allowed and other.allowed else None
        zeroed = self.zeroed and other.zeroed
        return Memory(h, keep, keys, both(self.last, other.last), zeroed=zeroed, allowed=allowed, unread=self.unread)

    def put(self, rows: Tensor, other: Memory) -> Memory:
        """Overwrite some `rows` by other sentences, with the same number of positions. It consumes both."""
        pairs = ((self.h, other.h), (self.keep, other.keep), *zip(self.keys, other.keys, strict=True))
        for ours, theirs in (*pairs, *zip(self.last, other.last, strict=True)):
            ours.index_copy_(0, rows, theirs)
        allowed = self.allowed.put(rows, other.allowed) if self.allowed and other.allowed else None
        zeroed = self.zeroed and other.zeroed
        return Memory(self.h, self.keep, self.keys, self.last, zeroed=zeroed, allowed=allowed, unread=self.unread)


class State(Protocol):
    """The state of a decoder between steps. It is consumed by `step`, which returns the next one."""

    def select(self, rows: Tensor) -> Self:
        """Return the state of some hypotheses, in the order of `rows`, as a beam needs it. It consumes this state."""
        ...

    def join(self, other: Self) -> Self:
        """Return the state of these sentences and of others that begin now, these first. It consumes both."""
        ...

    def put(self, rows: Tensor, other: Self) -> Self:
        """Replace some sentences by others that begin now. It consumes both."""
        ...


@dataclass(frozen=True)
class NeedWeights:
    """A request for attention weights, which are neither returned nor kept without one.

    `step` returns those over the source; with `self_attention`, those of the decoder's self-attention instead. `layer`
    selects one layer of the decoder, from 0, or from -1 for the last: weights (R, 1, H, n, S). Guided training needs
    one, so that the other layers stay fast.
    """

    self_attention: bool = False
    layer: int | None = None

    def layer_of(self, count: int) -> int:
        """Return the selected layer of `count`, from 0; raise ConfigError if there is no such layer.

        >>> NeedWeights(layer=-1).layer_of(3)
        2
        """
        if self.layer is None or not -count <= self.layer < count:
            raise ConfigError(
                f"attention weights of layer {self.layer} are needed, but the decoder has {count} with attention; "
                f"choose a layer from {-count} to {count - 1}"
            )
        return self.layer % count


class Step(NamedTuple):
    """The result of a step: hidden (R, n, …) for `logits`, the next state, and weights (R, L, H, n, S) if needed.

    `weights` is None if not needed, and for a model without attention.
    """

    hidden: Tensor
    state: State
    weights: Tensor | None


class Reread(NamedTuple):
    """The result of `reread`: hidden (N, …) of the N real tokens, sentence by sentence; weights (B, L, H, T, S).

    Each is None if not needed, and `weights` for a model without attention. Weights of padding may be anything.
    """

    hidden: Tensor | None
    weights: Tensor | None


class SlotState(Protocol):
    """A decoder over static shapes: B slots with K rows each, one sentence in a slot, each at its own position.

    Its tensors stay where they are, and nothing is read from the device, so that a step can be captured as a CUDA
    graph. Sentences enter at any step; a slot that is empty or finished computes numbers that nobody reads.
    """

    @property
    def nbytes(self) -> int:
        """How much memory its tensors take, without the source."""
        ...

    def put(self, slots: Tensor, memory: Memory) -> None:
        """Begin new sentences in some slots.  slots (n,), a memory of n sentences."""
        ...

    def step(self, y: Tensor, t: Tensor) -> Tensor:
        """Decode one token for each row; the caller may overwrite the logits.  y (B·K,), t (B,) -> (B·K, V).

        `y` are the tokens at position `t` of each slot; `advance` has to follow.
        """
        ...

    def advance(self, parents: Tensor | None) -> None:
        """Go to the next position: row r continues what row `parents[r]` holds, or with None itself."""
        ...


class Seq2Seq(Protocol):
    """One protocol for every model. One step of T tokens equals T steps of one token, to rounding.

    A state has R = B rows, one for each sentence of the memory, or R = B·K: K hypotheses for each, side by side. They
    attend to the same sentence, which is not copied: attention gets K queries.
    """

    def encode(self, x: Tensor, keep: Tensor | None, need_weights: NeedWeights | None = None) -> Memory:
        """Encode the source.  x (B, S), keep (B, S) with the padding on the right -> Memory.

        In a model of images x is uint8 (B, P, P, 3), or features (B, S, F), and keep is None: nothing is padding.
        """
        ...

    def start(self, memory: Memory, capacity: int) -> State:
        """Return the state before the first token, with B rows; at most `capacity` tokens will follow."""
        ...

    def step(self, y: Tensor, state: State, memory: Memory, need_weights: NeedWeights | None = None) -> Step:
        """Decode n target tokens.  y (R, n): n = 1 while decoding, n = T for teacher forcing or a forced prefix."""
        ...

    def reread(
        self,
        y: Tensor,
        lengths: Sequence[int],
        memory: Memory,
        need_weights: NeedWeights | None = None,
        need_hidden: bool = True,
    ) -> Reread:
        """Decode whole sentences with teacher forcing.  y (B, T), of which the first `lengths` tokens are real.

        What `step` computes for the real tokens, as far as it is needed: without `need_hidden`, the decoder stops at
        the weights.
        """
        ...

    def slots(self, memory: Memory, K: int, capacity: int) -> SlotState:
        """Return a decoder over static shapes, whose source is in `memory`: it is overwritten when sentences enter.

        Each sentence of the memory is a slot, with K rows; at most `capacity` tokens are decoded for it.
        """
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the scores of all tokens; the caller may overwrite them.  hidden (…, D) -> (…, V)."""
        ...

    def norms(self, memory: Memory) -> Tensor | None:
        """Return ‖f(h_j)‖, the length of the vector that a weight of 1 would contribute.  (B, L, H, S).

        None for a model without attention.
        """
        ...
