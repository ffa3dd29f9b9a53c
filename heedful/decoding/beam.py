"""Beam search: at every step the K best hypotheses go on, until nothing that could come is better than what is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.rules import Rules, best, log_probs
from heedful.decoding.settings import Decoding
from heedful.models import Memory, Seq2Seq
from heedful.text import END, START

__all__ = ["beam"]


@dataclass
class Heap:
    """Some hypotheses of each of B sentences: words (B, K, capacity), the log-probability of each, and their scores."""

    words: Tensor
    values: Tensor
    scores: Tensor  # (B, K), -inf where there is none
    lengths: Tensor  # (B, K)

    @classmethod
    def empty(cls, B: int, K: int, capacity: int, device: torch.device) -> Heap:
        """Return room for K hypotheses of each sentence, with none in it."""
        shape = (B, K, capacity)
        return cls(
            torch.full(shape, END, device=device),
            torch.zeros(shape, device=device),
            torch.full((B, K), -torch.inf, device=device),
            torch.zeros((B, K), dtype=torch.long, device=device),
        )

    def pick(self, which: Tensor) -> Heap:
        """Return some hypotheses of each sentence.  which (B, k)."""
        wide = which[:, :, None].expand(-1, -1, self.words.shape[2])
        return Heap(
            self.words.gather(1, wide),
            self.values.gather(1, wide),
            self.scores.gather(1, which),
            self.lengths.gather(1, which),
        )

    def join(self, other: Heap) -> Heap:
        """Return the hypotheses of both."""
        return Heap(*(torch.cat([mine, theirs], dim=1) for mine, theirs in zip(self._all(), other._all(), strict=True)))

    def select(self, rows: Tensor) -> Heap:
        """Return the hypotheses of some sentences."""
        return Heap(*(tensor[rows] for tensor in self._all()))

    def best(self, k: int) -> Heap:
        """Return the k best of each sentence, best first."""
        return self.pick(self.scores.topk(k, dim=1).indices)

    def _all(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.words, self.values, self.scores, self.lengths


@torch.inference_mode()
def beam(
    model: Seq2Seq,
    memory: Memory,
    limits: Sequence[int],
    settings: Decoding,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Return the `n_best` best hypotheses that a beam of K finds for each of the memory's sentences, best first.

    The search ends for a sentence when it cannot matter any more. A hypothesis that goes on only loses
    log-probability, and at its longest it is divided by the most: log P / lp(limit) is the most it can ever score. When
    the n-th best finished one has at least that of the best that is still going, nothing to come can enter the n best.
    """
    B, K, device = memory.keep.shape[0], settings.beam, memory.keep.device
    rules = Rules(limits, device, settings, prefixes)
    found: list[list[Hypothesis]] = [[] for _ in range(B)]
    rows = torch.arange(B, device=device)
    state = model.start(memory, rules.capacity).select(rows.repeat_interleave(K))
    y = torch.full((B * K, 1), START, device=device)
    live = Heap.empty(B, K, rules.capacity, device)
    live.scores[:, 0] = 0.0  # all K are the same at first: one of them counts
    done = Heap.empty(B, K, rules.capacity, device)
    most = torch.tensor([settings.divisor(limit) for limit in limits], device=device)
    for t in range(rules.capacity):
        hidden, state, _ = model.step(y, state, memory)
        scores = rules.apply(log_probs(model.logits(hidden[:, -1])), live.words.flatten(0, 1)[:, :t])
        parents, ahead = _continue(scores, live, t)
        ended = ahead.words[:, :, t] == END

        # Only the best K count as finished: the others are there for as many to go on when those end.
        new = ahead.pick(torch.arange(K, device=device).expand(len(rows), -1))
        new.scores = torch.where(ended[:, :K], new.scores / settings.divisor(t + 1), -torch.inf)
        done = done.join(new).best(K)
        ahead.scores = ahead.scores.masked_fill(ended, -torch.inf)
        chosen = ahead.scores.topk(K, dim=1).indices
        live, parents = ahead.pick(chosen), parents.gather(1, chosen)

        over = done.scores[:, settings.n_best - 1] >= live.scores[:, 0] / most
        first = torch.arange(len(rows), device=device)[:, None] * K
        if over.any():
            _take(found, rows, done, over, rules, settings.n_best)
            kept = (~over).nonzero()[:, 0]
            if not len(kept):
                break
            rows, most, live, done, memory = (
                rows[kept],
                most[kept],
                live.select(kept),
                done.select(kept),
                memory.select(kept),
            )
            rules.select(kept)
            first, parents = first[kept], parents[kept]
        state = state.select((first + parents).flatten())
        y = live.words[:, :, t].reshape(-1, 1)
    return found


def _continue(scores: Tensor, live: Heap, t: int) -> tuple[Tensor, Heap]:
    """Return the best 2K of all continuations of K hypotheses, and which each continues.  scores (B·K, V)."""
    B, K = live.scores.shape
    k = min(2 * K, scores.shape[1])
    values, words = best(scores, k)  # of each hypothesis: no more can be among the best 2K of all
    values, words = values.view(B, K, k), words.view(B, K * k)
    total, at = (live.scores[:, :, None] + values).flatten(1).topk(min(2 * K, K * k), dim=1)
    parents = at // k
    ahead = live.pick(parents)
    ahead.words[:, :, t] = words.gather(1, at)
    ahead.values[:, :, t] = values.flatten(1).gather(1, at)
    ahead.scores, ahead.lengths = total, ahead.lengths + 1
    return parents, ahead


def _take(found: list[list[Hypothesis]], rows: Tensor, done: Heap, over: Tensor, rules: Rules, n_best: int) -> None:
    """Put the best finished hypotheses of the sentences that are over into their places."""
    at = over.nonzero()[:, 0]
    ready = done.select(at)
    tensors = (rows[at], rules.limits[at], ready.words, ready.values, ready.scores, ready.lengths)
    for row, limit, words, values, scores, lengths in zip(*(tensor.tolist() for tensor in tensors), strict=True):
        for i in range(n_best):
            if scores[i] > -torch.inf:
                n = lengths[i]
                found[row].append(Hypothesis.of(words[i][:n], values[i][:n], limit))
