"""Several models with one vocabulary as one: they agree on every word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from heedful.decoding.rules import log_probs_
from heedful.models import Look, Memory, Seq2Seq, State, Step

__all__ = ["Ensemble"]


@dataclass(frozen=True)
class _Memories(Memory):
    """What each of the models has to look at; `h` and `keep` are the first one's."""

    each: tuple[Memory, ...] = ()

    def select(self, rows: Tensor) -> _Memories:
        """Return the memories of some sentences, in the order of `rows`."""
        return self._of([memory.select(rows) for memory in self.each])

    def wide(self, S: int) -> _Memories:
        """Return the same with room for S words of the source."""
        return self._of([memory.wide(S) for memory in self.each])

    def join(self, other: Memory) -> _Memories:
        """Return the memories of both."""
        return self._of([one.join(two) for one, two in zip(self.each, cast(_Memories, other).each, strict=True)])

    def put(self, rows: Tensor, other: Memory) -> _Memories:
        """Write other sentences over those of some `rows`."""
        return self._of([one.put(rows, two) for one, two in zip(self.each, cast(_Memories, other).each, strict=True)])

    @staticmethod
    def _of(each: Sequence[Memory]) -> _Memories:
        return _Memories(each[0].h, each[0].keep, each=tuple(each))


@dataclass(frozen=True)
class _States:
    """The state of each of the models."""

    each: tuple[State, ...]

    def select(self, rows: Tensor) -> _States:
        """Return the states of some hypotheses, in the order of `rows`."""
        return _States(tuple(state.select(rows) for state in self.each))

    def join(self, other: _States) -> _States:
        """Return the states of both."""
        return _States(tuple(one.join(two) for one, two in zip(self.each, other.each, strict=True)))

    def put(self, rows: Tensor, other: _States) -> _States:
        """Let others begin in the places of some sentences."""
        return _States(tuple(one.put(rows, two) for one, two in zip(self.each, other.each, strict=True)))


class Ensemble(nn.Module):
    """A model whose shares are the mean of its models' shares, p(y) = 1/M Σ_m p_m(y).

    Its weights are the mean of theirs; where they have other layers and heads, each model's are averaged first.
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def encode(self, x: Tensor, keep: Tensor, look: Look | None = None) -> _Memories:
        """Let every model read the source.  x (B, S), keep (B, S) -> _Memories."""
        each = tuple(model.encode(x, keep, look) for model in self._models)
        return _Memories(each[0].h, keep, weights=_mean([memory.weights for memory in each]), each=each)

    def start(self, memory: _Memories, capacity: int) -> _States:
        """Return every model's state before the first token."""
        return _States(tuple(m.start(own, capacity) for m, own in zip(self._models, memory.each, strict=True)))

    def step(self, y: Tensor, state: _States, memory: _Memories, look: Look | None = None) -> Step:
        """Let every model read n tokens; `hidden` is log p already.  y (R, n) -> hidden (R, n, V)."""
        steps = [m.step(y, own, seen, look) for m, own, seen in zip(self._models, state.each, memory.each, strict=True)]
        shares = torch.stack([log_probs_(m.logits(s.hidden)) for m, s in zip(self._models, steps, strict=True)])
        hidden = shares.logsumexp(0) - math.log(len(steps))
        return Step(hidden, _States(tuple(s.state for s in steps)), _mean([s.weights for s in steps]))

    def norms(self, memory: _Memories) -> Tensor | None:
        """Return the mean of what the models let through.  (B, L, H, S)."""
        return _mean([model.norms(own) for model, own in self.members(memory)])

    def members(self, memory: _Memories) -> list[tuple[Seq2Seq, Memory]]:
        """Return each model with what it has to look at."""
        return list(zip(self._models, memory.each, strict=True))

    def logits(self, hidden: Tensor) -> Tensor:
        """Return log p(y), which is what `step` gave.  hidden (…, V) -> (…, V)."""
        return hidden

    @property
    def _models(self) -> list[Seq2Seq]:
        return list(self.models)  # type: ignore[arg-type]


def _mean(weights: Sequence[Tensor | None]) -> Tensor | None:
    """Return the mean of weights (R, L, H, n, S), with L = H = 1 where they have not all the same layers and heads."""
    given = [w for w in weights if w is not None]
    if len({w.shape[1:3] for w in given}) > 1:
        given = [w.mean(dim=(1, 2), keepdim=True) for w in given]
    return torch.stack(given).mean(0) if given else None
