"""Writing word by word: greedy decoding, sampling, and both as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from hashlib import sha256
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from heedful.decoding.rules import Hypothesis, Rules, best, log_probs_
from heedful.decoding.settings import Decoding
from heedful.models import Look, Memory, Seq2Seq
from heedful.text import END, START

__all__ = ["Choose", "Draw", "Written", "argmax", "greedy", "sample", "write"]


class Written(NamedTuple):
    """One step: for each sentence still going, its number, its new word, and how probable that was.

    `weights` (sentences, L, H, S) say where each looked, if that was asked for and there is something to look at;
    `cut`, for which the limit put `</s>` in the place of the word that was chosen.
    """

    rows: list[int]
    ids: list[int]
    log_probs: list[float]
    weights: Tensor | None
    cut: list[bool]


class Choose(Protocol):
    """A way to choose the next words."""

    def __call__(self, scores: Tensor, rows: Sequence[int], t: int) -> Tensor:
        """Return a word for each row.  scores (R, V), the log-probabilities of what is allowed -> (R,)."""
        ...


def argmax(scores: Tensor, rows: Sequence[int], t: int) -> Tensor:
    """Take the most probable word."""
    return best(scores[:, None], 1)[1][:, 0]


class Draw:
    """Draw words at random, from the `top_k` most probable, and of these from the fewest that have `top_p` together.

    A sentence's random numbers follow from the seed, its own tokens, and which of its samples it is: what is drawn does
    not depend on the other sentences.
    """

    def __init__(self, settings: Decoding, sources: Sequence[Sequence[int]], numbers: Sequence[int]) -> None:
        self.settings = settings
        self.random = [
            np.random.default_rng([settings.seed, number, *_numbers(source)])
            for source, number in zip(sources, numbers, strict=True)
        ]

    def __call__(self, scores: Tensor, rows: Sequence[int], t: int) -> Tensor:
        """Draw a word for each row.  scores (R, V) -> (R,)."""
        settings = self.settings
        k = min(settings.top_k or scores.shape[-1], scores.shape[-1])
        words = None
        if settings.top_k or settings.top_p < 1:
            scores, words = scores.topk(k, dim=-1)  # largest first
            words = words.cpu()
        # In double precision: the last of many thousand small shares would be lost otherwise.
        # The best is taken off first: divided by next to nothing, all would be -∞ otherwise.
        device, scores = scores.device, scores.cpu().double()  # not every device has them
        shares = torch.softmax((scores - scores.amax(-1, keepdim=True)) / settings.temperature, dim=-1)
        wrong = shares.isnan().any(-1)  # of such a row the scores' own NaN is taken, by which it is known
        heap = shares.nan_to_num_(0.0).cumsum(-1)
        if settings.top_p < 1:
            heap = torch.where(heap - shares < settings.top_p, shares, 0.0).cumsum(-1)
        drawn = torch.tensor([[self.random[row].random()] for row in rows], dtype=heap.dtype)
        # The first whose heap is higher than what was drawn: a share of 0 is never that.
        at = torch.searchsorted(heap, drawn * heap[:, -1:], right=True)
        last = (heap < heap[:, -1:]).sum(-1, keepdim=True)
        at = torch.minimum(at, last)
        at[wrong] = scores.isnan().to(torch.uint8).argmax(-1, keepdim=True)[wrong]
        return (at if words is None else words.gather(1, at))[:, 0].to(device)


def _numbers(ids: Sequence[int]) -> list[int]:
    return list(np.frombuffer(sha256(np.asarray(ids, dtype=np.int64).tobytes()).digest(), dtype=np.uint32))


def write(
    model: Seq2Seq,
    memory: Memory,
    rules: Rules,
    choose: Choose = argmax,
    look: Look | None = None,
    stopped: AbstractSet[int] = frozenset(),
) -> Iterator[Written]:
    """Write a sentence for each of the memory's, a word at a time; to be gone through without gradients.

    Sentences that are done leave the batch, and each has its own limit: what one becomes does not depend on the others.
    Those whose numbers are in `stopped`, which may grow while it goes, leave after the next word. One whose scores are
    not numbers ends there, with `</s>` and NaN for its log-probability.
    """
    B, device = memory.keep.shape[0], memory.keep.device
    rows = list(range(B))
    state = model.start(memory, rules.capacity)
    y = torch.full((B, 1), START, device=device)
    words = torch.empty((B, min(64, rules.capacity)), dtype=torch.long, device=device)
    for t in range(rules.capacity):
        hidden, state, weights = model.step(y, state, memory, look)
        scores = rules.apply(log_probs_(model.logits(hidden[:, -1])), words[:, :t])
        chosen, cut = choose(scores, rows, t), None
        if (last := rules.last(t)) is not None:
            cut = last & (chosen != END)
            chosen = chosen.masked_fill(cut, END)
        values = scores.gather(1, chosen[:, None])[:, 0].tolist()
        ids = chosen.tolist()
        if not_numbers := [i for i, value in enumerate(values) if value != value]:
            ids = [END if i in not_numbers else word for i, word in enumerate(ids)]
            chosen = torch.tensor(ids, device=device)
        seen = None if weights is None else weights[:, :, :, 0]
        yield Written(rows, ids, values, seen, [False] * len(rows) if cut is None else cut.tolist())
        if t == words.shape[1]:
            words = torch.cat([words, words], dim=1)
        words[:, t] = chosen
        y = chosen[:, None]
        if END in ids or stopped:
            going = [i for i, word in enumerate(ids) if word != END and rows[i] not in stopped]
            if not going:
                return
            if len(going) == len(rows):
                continue
            rows = [rows[i] for i in going]
            kept = torch.tensor(going, device=device)
            state, memory, y, words = state.select(kept), memory.select(kept), y[kept], words[kept]
            rules.select(kept)


@torch.inference_mode()
def greedy(
    model: Seq2Seq,
    memory: Memory,
    limits: Sequence[int],
    settings: Decoding | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[Hypothesis]:
    """Take the most probable word at every step, of at most `limits[b]` ≥ 1 tokens, `</s>` among them."""
    return _collect(write(model, memory, Rules(limits, memory.keep.device, settings, prefixes)), len(limits))


@torch.inference_mode()
def sample(
    model: Seq2Seq,
    memory: Memory,
    limits: Sequence[int],
    settings: Decoding,
    sources: Sequence[Sequence[int]],
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Draw `n_best` sentences for each of the memory's; `sources` are their tokens, from which the chance follows."""
    n = settings.n_best
    rows = [b for b in range(len(limits)) for _ in range(n)]
    draw = Draw(settings, [sources[b] for b in rows], [i for _ in limits for i in range(n)])
    memory = memory.select(torch.tensor(rows, dtype=torch.long, device=memory.keep.device)) if n > 1 else memory
    each = [limits[b] for b in rows]
    rules = Rules(each, memory.keep.device, settings, [prefixes[b] for b in rows] if prefixes else None)
    drawn = _collect(write(model, memory, rules, draw), len(each))
    return [drawn[b * n : (b + 1) * n] for b in range(len(limits))]


def _collect(steps: Iterator[Written], count: int) -> list[Hypothesis]:
    ids: list[list[int]] = [[] for _ in range(count)]
    values: list[list[float]] = [[] for _ in range(count)]
    short = [False] * count
    for step in steps:
        for row, word, value, cut in zip(step.rows, step.ids, step.log_probs, step.cut, strict=True):
            ids[row].append(word)
            values[row].append(value)
            short[row] = cut
    return [Hypothesis(tuple(i), tuple(v), cut) for i, v, cut in zip(ids, values, short, strict=True)]
