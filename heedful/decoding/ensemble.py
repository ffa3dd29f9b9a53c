"""Several models with one vocabulary as one model: it decodes by the mean of their probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from heedful.decoding.rules import log_probs_, next_log_probs
from heedful.models import Memory, NeedWeights, Reread, Seq2Seq, SlotState, State, Step


@dataclass(frozen=True)
class _Memories(Memory):
    """The memory of each model; `h`, `keep` and `unread` are those of the first."""

    each: tuple[Memory, ...] = ()

    def admit(self, prefixes: Sequence[Sequence[int]]) -> None:
        """Allow the tokens of prefixes in every model's memory."""
        for memory in self.each:
            memory.admit(prefixes)

    def select(self, rows: Tensor) -> _Memories:
        """Return the memories of some sentences, in the order of `rows`."""
        return self._of([memory.select(rows) for memory in self.each])

    def pad_to(self, S: int) -> _Memories:
        """Return the same with room for S source tokens."""
        return self._of([memory.pad_to(S) for memory in self.each])

    def join(self, other: Memory) -> _Memories:
        """Return the memories of both."""
        return self._of([one.join(two) for one, two in zip(self.each, cast(_Memories, other).each, strict=True)])

    def put(self, rows: Tensor, other: Memory) -> _Memories:
        """Overwrite the sentences of some `rows` by others."""
        return self._of([one.put(rows, two) for one, two in zip(self.each, cast(_Memories, other).each, strict=True)])

    @staticmethod
    def _of(each: Sequence[Memory]) -> _Memories:
        return _Memories(each[0].h, each[0].keep, unread=each[0].unread, each=tuple(each))


@dataclass(frozen=True)
class _States:
    """The state of each model."""

    each: tuple[State, ...]

    def select(self, rows: Tensor) -> _States:
        """Return the states of some hypotheses, in the order of `rows`."""
        return _States(tuple(state.select(rows) for state in self.each))

    def join(self, other: _States) -> _States:
        """Return the states of both."""
        return _States(tuple(one.join(two) for one, two in zip(self.each, other.each, strict=True)))

    def put(self, rows: Tensor, other: _States) -> _States:
        """Replace some sentences by others that begin now."""
        return _States(tuple(one.put(rows, two) for one, two in zip(self.each, other.each, strict=True)))


class _EachSlots:
    """The slots of each model."""

    def __init__(self, each: Sequence[SlotState]) -> None:
        self.each = each

    @property
    def nbytes(self) -> int:
        """How much memory they take together."""
        return sum(one.nbytes for one in self.each)

    def put(self, slots: Tensor, memory: Memory) -> None:
        """Begin new sentences in some slots."""
        for one, own in zip(self.each, cast(_Memories, memory).each, strict=True):
            one.put(slots, own)

    def step(self, y: Tensor, t: Tensor) -> Tensor:
        """Decode one token for each row; return log p.  y (B·K,), t (B,) -> (B·K, V)."""
        return _mean_log_probs([one.step(y, t) for one in self.each])

    def advance(self, parents: Tensor | None) -> None:
        """Go to the next position."""
        for one in self.each:
            one.advance(parents)


class Ensemble(nn.Module):
    """A model whose probabilities are the mean of its models' probabilities, p(y) = 1/M Σ_m p_m(y).

    Its attention weights are the mean of theirs; if numbers of layers or heads differ, each model's are averaged first.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def encode(self, x: Tensor, keep: Tensor | None, need_weights: NeedWeights | None = None) -> _Memories:
        """Encode the source by every model.  x (B, S), keep (B, S) -> _Memories."""
        each = tuple(model.encode(x, keep, need_weights) for model in self._models)
        weights = _mean([memory.weights for memory in each])
        return _Memories(each[0].h, each[0].keep, weights=weights, unread=each[0].unread, each=each)

    def start(self, memory: _Memories, capacity: int) -> _States:
        """Return every model's state before the first token."""
        return _States(tuple(m.start(own, capacity) for m, own in zip(self._models, memory.each, strict=True)))

    def step(self, y: Tensor, state: _States, memory: _Memories, need_weights: NeedWeights | None = None) -> Step:
        """Decode n tokens by every model; `hidden` is log p already.  y (R, n) -> hidden (R, n, V)."""
        members = zip(self._models, state.each, memory.each, strict=True)
        steps = [model.step(y, own, source, need_weights) for model, own, source in members]
        # `hidden` (R, n, D) is that of the next tokens, n = 1, where a shortlist counts.
        log_p = [
            next_log_probs(model, s.hidden.flatten(0, 1), source).view(*s.hidden.shape[:2], -1)
            for model, s, source in zip(self._models, steps, memory.each, strict=True)
        ]
        hidden = _mean_of(log_p)
        return Step(hidden, _States(tuple(s.state for s in steps)), _mean([s.weights for s in steps]))

    def reread(
        self,
        y: Tensor,
        lengths: Sequence[int],
        memory: _Memories,
        need_weights: NeedWeights | None = None,
        need_hidden: bool = True,
    ) -> Reread:
        """Decode whole sentences by every model; `hidden` is log p already.  y (B, T) -> hidden (N, V)."""
        each = [model.reread(y, lengths, own, need_weights, need_hidden) for model, own in self.members(memory)]
        hidden = [one.hidden for one in each if one.hidden is not None]
        return Reread(self._log_p(hidden) if hidden else None, _mean([one.weights for one in each]))

    def _log_p(self, hidden: Sequence[Tensor]) -> Tensor:
        """Return the log of the mean of the models' probabilities.  M (…, D) -> (…, V)."""
        return _mean_log_probs([m.logits(h) for m, h in zip(self._models, hidden, strict=True)])

    def slots(self, memory: _Memories, K: int, capacity: int) -> _EachSlots:
        """Return every model's decoder over static shapes."""
        return _EachSlots([model.slots(own, K, capacity) for model, own in self.members(memory)])

    def norms(self, memory: _Memories) -> Tensor | None:
        """Return the mean of the models' norms.  (B, L, H, S)."""
        return _mean([model.norms(own) for model, own in self.members(memory)])

    def members(self, memory: _Memories) -> list[tuple[Seq2Seq, Memory]]:
        """Return each model with its memory."""
        return list(zip(self._models, memory.each, strict=True))

    def logits(self, hidden: Tensor) -> Tensor:
        """Return log p(y), which `step` returned.  hidden (…, V) -> (…, V)."""
        return hidden

    @property
    def _models(self) -> list[Seq2Seq]:
        return list(self.models)  # type: ignore[arg-type]


def _mean_log_probs(logits: Sequence[Tensor]) -> Tensor:
    """Return log 1/M Σ_m p_m(y); the logits of each model are overwritten.  (…, V)."""
    return _mean_of([log_probs_(each) for each in logits])


def _mean_of(log_p: Sequence[Tensor]) -> Tensor:
    """Return log 1/M Σ_m p_m(y) of log-probabilities.  (…, V)."""
    return torch.stack(list(log_p)).logsumexp(0) - math.log(len(log_p))


def _mean(weights: Sequence[Tensor | None]) -> Tensor | None:
    """Return the mean of weights (R, L, H, n, S), with L = H = 1 where numbers of layers and heads differ."""
    present = [w for w in weights if w is not None]
    if len({w.shape[1:3] for w in present}) > 1:
        present = [w.mean(dim=(1, 2), keepdim=True) for w in present]
    return torch.stack(present).mean(0) if present else None
