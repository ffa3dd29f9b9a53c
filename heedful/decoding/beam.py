"""Beam search: at every step the K best hypotheses go on, until nothing that could come is better than what is done."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.decoding.rules import Hypothesis, Rules, best, log_probs_
from heedful.decoding.settings import Decoding
from heedful.decoding.writing import greedy
from heedful.models import Memory, Seq2Seq
from heedful.text import END, START

__all__ = ["Found", "beam", "search"]

Found = list[tuple[int, list[Hypothesis]]]  # the numbers of sentences, and the hypotheses of each, best first
ROOM = 64  # words there is room for at first; when it is full, it is doubled


@dataclass
class _Heap:
    """K hypotheses of each of B sentences: words (B, K, room), the log-probability of each word, and scores."""

    words: Tensor
    values: Tensor
    scores: Tensor  # (B, K), -inf where there is none
    lengths: Tensor  # (B, K)
    cut: Tensor  # (B, K), whether the limit ended it

    @classmethod
    def empty(cls, B: int, K: int, room: int, device: torch.device) -> _Heap:
        """Return room for K hypotheses of each sentence, with none in it."""
        shape = (B, K, room)
        return cls(
            torch.full(shape, END, device=device),
            torch.zeros(shape, device=device),
            torch.full((B, K), -torch.inf, device=device),
            torch.zeros((B, K), dtype=torch.long, device=device),
            torch.zeros((B, K), dtype=torch.bool, device=device),
        )

    def pick(self, which: Tensor) -> _Heap:
        """Return some hypotheses of each sentence.  which (B, k)."""
        wide = which[:, :, None].expand(-1, -1, self.words.shape[2])
        return _Heap(
            self.words.gather(1, wide),
            self.values.gather(1, wide),
            self.scores.gather(1, which),
            self.lengths.gather(1, which),
            self.cut.gather(1, which),
        )

    def longer(self) -> _Heap:
        """Return the same with twice the room."""
        words = torch.cat([self.words, torch.full_like(self.words, END)], dim=2)
        values = torch.cat([self.values, torch.zeros_like(self.values)], dim=2)
        return _Heap(words, values, self.scores, self.lengths, self.cut)

    def extend(self, ahead: _Ahead, t: int) -> _Heap:
        """Return hypotheses with one word more, the one in place t."""
        longer = self.pick(ahead.parents)
        longer.words[:, :, t], longer.values[:, :, t] = ahead.words, ahead.values
        longer.scores, longer.lengths = ahead.scores, longer.lengths + 1
        return longer

    def merge(self, other: _Heap) -> _Heap:
        """Return the best of both, as many as there were here, best first."""
        both = _Heap(*(torch.cat([mine, new], dim=1) for mine, new in zip(self._all(), other._all(), strict=True)))
        return both.pick(both.scores.topk(self.scores.shape[1], dim=1).indices)

    def select(self, rows: Tensor) -> _Heap:
        """Return the hypotheses of some sentences."""
        return _Heap(*(tensor[rows] for tensor in self._all()))

    def _all(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        return self.words, self.values, self.scores, self.lengths, self.cut


class _Ahead(NamedTuple):
    """Continuations (B, k): of which hypothesis, by which word, its log-probability, and that of the whole."""

    parents: Tensor
    words: Tensor
    values: Tensor
    scores: Tensor

    def pick(self, which: Tensor) -> _Ahead:
        """Return some of them.  which (B, n)."""
        return _Ahead(*(tensor.gather(1, which) for tensor in self))


@torch.inference_mode()
def beam(
    model: Seq2Seq,
    memory: Memory,
    limits: Sequence[int],
    settings: Decoding,
    prefixes: Sequence[Sequence[int]] | None = None,
    n: int = 0,
) -> list[list[Hypothesis]]:
    """Return the n best hypotheses, or `n_best`, that a beam of K finds for each sentence of a memory, best first.

    n may be more than K: what is finished makes room for others. The search ends for a sentence when it cannot matter
    any more. A hypothesis that goes on only loses log-probability, and at its longest it is divided by the most: log P
    / lp(limit) is the most it can ever score. When the n-th best finished one has at least that of the best that is
    still going, nothing to come can enter the n best. A beam of 1 has nothing to compare: it is `greedy`.
    """
    if settings.beam == 1:
        return [[one] for one in greedy(model, memory, limits, settings, prefixes)]
    found: list[list[Hypothesis]] = [[] for _ in limits]
    for some in search(model, memory, limits, settings, prefixes, n):
        for row, hypotheses in some:
            found[row] = hypotheses
    return found


@torch.inference_mode()
def search(
    model: Seq2Seq,
    memory: Memory,
    limits: Sequence[int],
    settings: Decoding,
    prefixes: Sequence[Sequence[int]] | None = None,
    n: int = 0,
    stopped: AbstractSet[int] = frozenset(),
) -> Iterator[Found]:
    """Search as `beam` does, of at least two hypotheses, and give after every step the sentences that are over.

    A sentence whose number is in `stopped`, which may grow while it goes, is over after the next step.
    """
    B, K, n, device = memory.keep.shape[0], settings.beam, n or settings.n_best, memory.keep.device
    rules = Rules(limits, device, settings, prefixes)
    rows = torch.arange(B, device=device)
    state = model.start(memory, rules.capacity).select(rows.repeat_interleave(K))
    y = torch.full((B * K, 1), START, device=device)
    live, done = (_Heap.empty(B, size, min(ROOM, rules.capacity), device) for size in (K, n))
    live.scores[:, 0] = 0.0  # all K are the same at first: one of them counts
    first = torch.arange(B, device=device)[:, None] * K
    most = torch.tensor([settings.divisor(limit) for limit in limits], device=device)
    for t in range(rules.capacity):
        if t == live.words.shape[2]:
            live, done = live.longer(), done.longer()
        hidden, state, _ = model.step(y, state, memory)
        scores = rules.apply(log_probs_(model.logits(hidden[:, -1])), live.words.flatten(0, 1)[:, :t])
        if (cut := rules.end(scores, t)) is not None:
            live.cut = cut.view(-1, K)  # of those that end here, and of no others
        ahead = _continue(scores, live.scores)
        broken = ahead.scores[:, 0].isnan()  # the largest of all, so it is the first
        ended = ahead.words == END
        # Only the best K count as finished: the others are there for as many to go on when those end.
        if ended[:, :K].any():
            new = live.extend(_Ahead(*(tensor[:, :K] for tensor in ahead)), t)
            new.scores = torch.where(ended[:, :K], new.scores / settings.divisor(t + 1), -torch.inf)
            done = done.merge(new)
        ahead = ahead._replace(scores=ahead.scores.masked_fill(ended, -torch.inf))
        ahead = ahead.pick(ahead.scores.topk(K, dim=1).indices)
        live, parents = live.extend(ahead, t), ahead.parents
        over = (done.scores[:, n - 1] >= live.scores[:, 0] / most) | broken
        if stopped:
            over |= torch.tensor([row in stopped for row in rows.tolist()], device=device)
        if over.any():
            yield _take(rows, done, over, broken)
            kept = (~over).nonzero()[:, 0]
            if not len(kept):
                return
            rows, most, memory = rows[kept], most[kept], memory.select(kept)
            live, done = live.select(kept), done.select(kept)
            rules.select(kept)
            parents, first = parents[kept], first[: len(kept)]
            state = state.select((kept[:, None] * K + parents).flatten())
        else:
            yield []
            state = state.select((first + parents).flatten())
        y = live.words[:, :, t].reshape(-1, 1)


def _continue(scores: Tensor, live: Tensor) -> _Ahead:
    """Return the best 2K of all continuations of K hypotheses, best first.  scores (B·K, V), live (B, K)."""
    B, K = live.shape
    V = scores.shape[1]
    total, at = best(scores.view(B, K, V), min(2 * K, K * V), live)
    parents, words = at // V, at % V
    return _Ahead(parents, words, scores.view(B, K * V).gather(1, at), total)


def _take(rows: Tensor, done: _Heap, over: Tensor, broken: Tensor) -> Found:
    """Return the finished hypotheses of the sentences that are over; of a broken one, the mark of that alone."""
    at = over.nonzero()[:, 0]
    ready = done.select(at)
    found: Found = []
    wrong = broken[at].tolist()
    for bad, row, *each in zip(wrong, rows[at].tolist(), *(part.tolist() for part in ready._all()), strict=True):
        if bad:
            found.append((row, [Hypothesis((END,), (math.nan,))]))
            continue
        hypotheses = [
            Hypothesis(tuple(words[:length]), tuple(values[:length]), cut)
            for words, values, score, length, cut in zip(*each, strict=True)
            if score > -torch.inf
        ]
        found.append((row, hypotheses))
    return found
