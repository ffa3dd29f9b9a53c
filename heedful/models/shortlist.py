"""Shortlists: for each source token the target tokens that it may become, so that few are compared at every step.

A student has a large part of its weights in the vocabulary, and most of its time goes into the scores of tokens that no
source word suggests. With a shortlist, the tokens that may follow are the most frequent ones and the candidates of
the tokens of the sentence, some hundreds of 32,000. All others have the probability 0. They follow from the sentence
alone, not from the others of its batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from heedful.errors import ShapeError

WIDE = 2  # with more than one in so many tokens, all scores are computed, and the others masked


class Scorer(Protocol):
    """What scores tokens: all of them, or the rows that `output_rows` returned."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the scores of all tokens.  (…, D) -> (…, V)."""
        ...

    def output_rows(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return W and b of the scores of some tokens.  (n,) -> (n, D), (n,)."""
        ...


class _OutputRows(NamedTuple):
    """The tokens that any of B sentences allows, in order, and their weights: none if these tokens are many.

    `gone` (B', n) are those that each of the sentences that are left does not allow; None if there was one from the
    beginning, which allows all of them.
    """

    B: int
    tokens: Tensor
    W: Tensor | None
    b: Tensor | None
    gone: Tensor | None

    def of(self, rows: Tensor | slice) -> _OutputRows:
        """Return the same for some of the sentences."""
        return self if self.gone is None else self._replace(gone=self.gone[rows])


class Allowed:
    """The target tokens that each of B sentences may have: keep (B, V)."""

    def __init__(self, keep: Tensor, rows: _OutputRows | None = None) -> None:
        self.keep, self.rows = keep, rows

    def select(self, rows: Tensor) -> Allowed:
        """Return those of some sentences, in the order of `rows`."""
        few = self.rows is None or 2 * len(rows) <= self.rows.B
        return Allowed(self.keep[rows], None if few or self.rows is None else self.rows.of(rows))

    def part(self, some: slice, model: Scorer) -> Allowed:
        """Return those of some sentences side by side, without a copy."""
        self.rows = self.rows or self._output_rows(model)
        return Allowed(self.keep[some], self.rows.of(some))

    def join(self, other: Allowed) -> Allowed:
        """Return those of both."""
        return Allowed(torch.cat([self.keep, other.keep]))

    def put(self, rows: Tensor, other: Allowed) -> Allowed:
        """Overwrite those of some `rows`, in place."""
        self.keep.index_copy_(0, rows, other.keep)
        return Allowed(self.keep)

    @torch.inference_mode()
    def admit(self, prefixes: Sequence[Sequence[int]]) -> None:
        """Allow the tokens that each sentence is told to begin with, too, in place."""
        for row, prefix in enumerate(prefixes):
            if prefix:
                self.keep[row, list(prefix)] = True
                self.rows = None

    def log_probs(self, model: Scorer, hidden: Tensor) -> Tensor:
        """Return the log-probabilities among the allowed tokens, -∞ for all others.  (B·K, D) -> (B·K, V).

        On a CPU, only the scores of tokens that some sentence allows are computed.
        """
        if hidden.is_cuda:
            return self.mask(model.logits(hidden)).float().log_softmax(-1)
        self.rows = self.rows or self._output_rows(model)
        _, tokens, W, b, gone = self.rows
        if W is None:
            return self.mask(model.logits(hidden)).float().log_softmax(-1)
        hidden = hidden.to(W.dtype)
        some = hidden @ W.t() if b is None else torch.addmm(b, hidden, W.t())
        if gone is not None:
            some.view(len(gone), -1, len(tokens)).masked_fill_(gone[:, None], -torch.inf)
        every = some.new_full((len(hidden), self.keep.shape[1]), -torch.inf)
        return every.index_copy_(1, tokens, some.log_softmax(-1))

    def _output_rows(self, model: Scorer) -> _OutputRows:
        B, V = self.keep.shape
        tokens = self.keep.any(0).nonzero()[:, 0]
        W, b = model.output_rows(tokens) if WIDE * len(tokens) <= V else (None, None)
        return _OutputRows(B, tokens, W, b, None if B == 1 or W is None else ~self.keep[:, tokens])

    def mask(self, logits: Tensor) -> Tensor:
        """Set the scores of other tokens to -∞, in place.  (B·K, V)."""
        B, V = self.keep.shape
        logits.view(B, -1, V).masked_fill_(~self.keep[:, None], -torch.inf)
        return logits


class Shortlist:
    """For each source token i its candidates, `candidates[offsets[i]:offsets[i + 1]]`, and what may `always` follow.

    Where both languages share their vocabulary, a source token may be copied: then it is a candidate of its own.
    """

    def __init__(self, offsets: Tensor, candidates: Tensor, always: Tensor, target: int) -> None:
        self.offsets, self.candidates, self.always, self.target = offsets, candidates, always, target

    def tensors(self) -> dict[str, Tensor]:
        """Return its tensors by name; `build` reads them."""
        return {"offsets": self.offsets, "candidates": self.candidates, "always": self.always}

    @classmethod
    def build(cls, tensors: Mapping[str, Tensor], source: int, target: int) -> Shortlist:
        """Return the shortlist of vocabularies of `source` and `target` tokens; raise ShapeError if it is of others."""
        if tensors.keys() != {"offsets", "candidates", "always"}:
            raise ShapeError(f"expected offsets, candidates and always, found {', '.join(sorted(tensors))[:200]}")
        offsets, candidates, always = (tensors[name] for name in ("offsets", "candidates", "always"))
        for name, tensor in tensors.items():
            if tensor.dtype != torch.int64 or tensor.ndim != 1:
                raise ShapeError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}, expected a list of int64")
        if len(offsets) != source + 1:
            raise ShapeError(
                f"there are {len(offsets):,} offsets, expected {source + 1:,}: the source tokens and an end"
            )
        rising = int(offsets[0]) == 0 and bool((offsets[1:] >= offsets[:-1]).all())
        if not rising or int(offsets[-1]) != len(candidates):
            raise ShapeError(f"the offsets do not rise from 0 to {len(candidates):,}, the number of candidates")
        for name, tokens in (("candidates", candidates), ("always", always)):
            if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < target:
                raise ShapeError(f"{name} has the token {int(tokens.max())}, but the vocabulary has {target:,}")
        return cls(offsets, candidates, always, target)

    def to(self, device: torch.device) -> Shortlist:
        """Return the same on a device."""
        if self.offsets.device == device:
            return self
        return Shortlist(self.offsets.to(device), self.candidates.to(device), self.always.to(device), self.target)

    def allowed(self, x: Tensor, keep: Tensor) -> Allowed:
        """Return the tokens that may follow for each source sentence.  x (B, S), keep (B, S)."""
        mask = torch.zeros(len(x), self.target, dtype=torch.bool, device=x.device)
        mask[:, self.always] = True
        rows, places = keep.nonzero(as_tuple=True)
        sources = x[rows, places]
        begin = self.offsets[sources]
        counts = self.offsets[sources + 1] - begin
        # The candidates of all tokens in one list: those of token i are at begin_i, begin_i + 1, ….
        shift = begin - (counts.cumsum(0) - counts)
        at = torch.arange(int(counts.sum()), device=x.device) + shift.repeat_interleave(counts)
        mask[rows.repeat_interleave(counts), self.candidates[at]] = True
        return Allowed(mask)
