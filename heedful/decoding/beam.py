"""Beam search: the K best hypotheses are continued at every step, until no continuation can enter the n best."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.decoding.rules import Decoding, Hypothesis, Rules, best, next_log_probs
from heedful.decoding.steps import greedy
from heedful.models import Memory, Seq2Seq
from heedful.text import END, START

Finished = list[tuple[int, list[Hypothesis]]]  # numbers of sentences, and the hypotheses of each, best first
CAPACITY = 64  # tokens there is room for at first; it is doubled when it is full
ROWS = 64  # hypotheses whose scores are computed at a time on a CPU: all at once would not stay in its caches


@dataclass
class _Hypotheses:
    """K hypotheses of each of B sentences: tokens (B, K, capacity), the log-probability of each token, and scores."""

    tokens: Tensor
    values: Tensor
    scores: Tensor  # (B, K), -inf where there is none
    lengths: Tensor  # (B, K)
    cut: Tensor  # (B, K), whether the limit ended it

    @classmethod
    def empty(cls, B: int, K: int, capacity: int, device: torch.device) -> _Hypotheses:
        """Return room for K hypotheses of each sentence."""
        shape = (B, K, capacity)
        return cls(
            torch.full(shape, END, device=device),
            torch.zeros(shape, device=device),
            torch.full((B, K), -torch.inf, device=device),
            torch.zeros((B, K), dtype=torch.long, device=device),
            torch.zeros((B, K), dtype=torch.bool, device=device),
        )

    def pick(self, which: Tensor) -> _Hypotheses:
        """Return some hypotheses of each sentence.  which (B, k)."""
        wide = which[:, :, None].expand(-1, -1, self.tokens.shape[2])
        return _Hypotheses(
            self.tokens.gather(1, wide),
            self.values.gather(1, wide),
            self.scores.gather(1, which),
            self.lengths.gather(1, which),
            self.cut.gather(1, which),
        )

    def grow(self) -> _Hypotheses:
        """Return the same with twice the capacity."""
        tokens = torch.cat([self.tokens, torch.full_like(self.tokens, END)], dim=2)
        values = torch.cat([self.values, torch.zeros_like(self.values)], dim=2)
        return _Hypotheses(tokens, values, self.scores, self.lengths, self.cut)

    def extend(self, by: _Continuations, t: int) -> _Hypotheses:
        """Return continued hypotheses; the new token is token t."""
        longer = self.pick(by.parents)
        longer.tokens[:, :, t], longer.values[:, :, t] = by.tokens, by.values
        longer.scores, longer.lengths = by.scores, longer.lengths + 1
        return longer

    def merge(self, other: _Hypotheses) -> _Hypotheses:
        """Return the best of both, as many as there were here, best first."""
        both = _Hypotheses(*(torch.cat(pair, dim=1) for pair in zip(self.tensors(), other.tensors(), strict=True)))
        return both.pick(both.scores.topk(self.scores.shape[1], dim=1).indices)

    def select(self, rows: Tensor) -> _Hypotheses:
        """Return the hypotheses of some sentences."""
        return _Hypotheses(*(tensor[rows] for tensor in self.tensors()))

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return all fields in order."""
        return self.tokens, self.values, self.scores, self.lengths, self.cut


class _Continuations(NamedTuple):
    """Continuations (B, k): of which hypothesis, by which token, its log-probability, and that of the whole."""

    parents: Tensor
    tokens: Tensor
    values: Tensor
    scores: Tensor

    def pick(self, which: Tensor) -> _Continuations:
        """Return some of them.  which (B, n)."""
        return _Continuations(*(tensor.gather(1, which) for tensor in self))


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

    n may be more than K, because finished hypotheses make room for others. The search for a sentence ends when its
    result is certain. A hypothesis that goes on only loses log-probability, and at its longest it is divided by the
    most: log P / lp(limit) is the most it can ever score. When the n-th best finished one has at least that of the best
    that is still going, nothing can enter the n best any more. A beam of 1 is `greedy`.
    """
    if settings.beam == 1:
        return [[one] for one in greedy(model, memory, limits, settings, prefixes)]
    hypotheses: list[list[Hypothesis]] = [[] for _ in limits]
    for finished in beam_steps(model, memory, limits, settings, prefixes, n):
        for row, each in finished:
            hypotheses[row] = each
    return hypotheses


@torch.inference_mode()
def beam_steps(
    model: Seq2Seq,
    memory: Memory,
    limits: Sequence[int],
    settings: Decoding,
    prefixes: Sequence[Sequence[int]] | None = None,
    n: int = 0,
    stopped: AbstractSet[int] = frozenset(),
) -> Iterator[Finished]:
    """Search as `beam` does, with K ≥ 2, and yield after every step the sentences that are finished.

    A sentence whose number is in `stopped`, a set that may grow meanwhile, ends after the next step.
    """
    B, K, n, device = memory.keep.shape[0], settings.beam, n or settings.n_best, memory.keep.device
    rules = Rules(limits, device, settings, prefixes)
    rows = torch.arange(B, device=device)
    state = model.start(memory, rules.capacity).select(rows.repeat_interleave(K))
    y = torch.full((B * K, 1), START, device=device)
    live, done = (_Hypotheses.empty(B, size, min(CAPACITY, rules.capacity), device) for size in (K, n))
    live.scores[:, 0] = 0.0  # all K are the same at first: one of them counts
    first = torch.arange(B, device=device)[:, None] * K
    divisors = torch.tensor([settings.divisor(limit) for limit in limits], device=device)
    for t in range(rules.capacity):
        if t == live.tokens.shape[2]:
            live, done = live.grow(), done.grow()
        hidden, state, _ = model.step(y, state, memory)
        ahead, cut = _best_continuations(model, hidden[:, -1], memory, live, rules, t)
        live.cut = live.cut if cut is None else cut  # of those that end here, and of no others
        broken = ahead.scores[:, 0].isnan()  # NaN sorts as the largest, so it is the first
        ended = ahead.tokens == END
        # Only the best K count as finished; the others are there so that K can go on when some of those end.
        if ended[:, :K].any():
            new = live.extend(_Continuations(*(tensor[:, :K] for tensor in ahead)), t)
            new.scores = torch.where(ended[:, :K], new.scores / settings.divisor(t + 1), -torch.inf)
            done = done.merge(new)
        ahead = ahead._replace(scores=ahead.scores.masked_fill(ended, -torch.inf))
        ahead = ahead.pick(ahead.scores.topk(K, dim=1).indices)
        live, parents = live.extend(ahead, t), ahead.parents
        over = (done.scores[:, n - 1] >= live.scores[:, 0] / divisors) | broken
        if stopped:
            over |= torch.tensor([row in stopped for row in rows.tolist()], device=device)
        if over.any():
            yield _finished(rows, done, over, broken)
            kept = (~over).nonzero()[:, 0]
            if not len(kept):
                return
            rows, divisors, memory = rows[kept], divisors[kept], memory.select(kept)
            live, done = live.select(kept), done.select(kept)
            rules.select(kept)
            parents, first = parents[kept], first[: len(kept)]
            state = state.select((kept[:, None] * K + parents).flatten())
        else:
            yield []
            state = state.select((first + parents).flatten())
        y = live.tokens[:, :, t].reshape(-1, 1)


def _best_continuations(
    model: Seq2Seq, hidden: Tensor, memory: Memory, live: _Hypotheses, rules: Rules, t: int
) -> tuple[_Continuations, Tensor | None]:
    """Return the best 2K continuations of each sentence by token t, and which were cut (B, K), None for none."""
    B, K = live.scores.shape
    size = max(1, ROWS // K) if hidden.is_cpu else B
    parts, cuts = [], []
    for begin in range(0, B, size):
        some = slice(begin, begin + size)
        ours = rules if size >= B else rules.part(some)
        scores = next_log_probs(model, hidden[begin * K : (begin + size) * K], memory, some)
        scores = ours.apply(scores, live.tokens[some, :, :t].flatten(0, 1))
        cut = ours.end(scores, t)
        cuts.append(live.cut[some] if cut is None else cut.view(-1, K))
        parts.append(_continue(scores, live.scores[some]))
    last = rules.last(t) is not None
    if len(parts) == 1:
        return parts[0], cuts[0] if last else None
    return _Continuations(*(torch.cat(each) for each in zip(*parts, strict=True))), torch.cat(cuts) if last else None


def _continue(scores: Tensor, live: Tensor) -> _Continuations:
    """Return the best 2K of all continuations of K hypotheses, best first.  scores (B·K, V), live (B, K)."""
    B, K = live.shape
    V = scores.shape[1]
    total, at = best(scores.view(B, K, V), min(2 * K, K * V), live)
    parents, tokens = at // V, at % V
    return _Continuations(parents, tokens, scores.view(B, K * V).gather(1, at), total)


def _finished(rows: Tensor, done: _Hypotheses, over: Tensor, broken: Tensor) -> Finished:
    """Return the hypotheses of finished sentences; of a sentence whose scores are NaN, one that marks this."""
    at = over.nonzero()[:, 0]
    ready = done.select(at)
    finished: Finished = []
    not_numbers = broken[at].tolist()
    for nan, row, *each in zip(not_numbers, rows[at].tolist(), *(t.tolist() for t in ready.tensors()), strict=True):
        if nan:
            finished.append((row, [Hypothesis((END,), (math.nan,))]))
            continue
        hypotheses = [
            Hypothesis(tuple(tokens[:length]), tuple(values[:length]), cut)
            for tokens, values, score, length, cut in zip(*each, strict=True)
            if score > -torch.inf
        ]
        finished.append((row, hypotheses))
    return finished
