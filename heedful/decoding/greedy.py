"""Greedy decoding: at every step the most probable word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from heedful.models import Memory, Seq2Seq
from heedful.text import END, PAD, START

__all__ = ["Hypothesis", "greedy"]


class Hypothesis(NamedTuple):
    """Token ids, ending with `</s>`, and the log-probability of each."""

    ids: tuple[int, ...]
    log_probs: tuple[float, ...]


@torch.inference_mode()
def greedy(model: Seq2Seq, memory: Memory, limits: Sequence[int]) -> list[Hypothesis]:
    """Write a sentence for each of the memory's; sentence b has at most `limits[b]` ≥ 1 tokens, `</s>` among them.

    Sentences that are done leave the batch, and each has its own limit: what one becomes does not depend on the others.
    """
    B, device = memory.h.shape[0], memory.h.device
    ids: list[list[int]] = [[] for _ in range(B)]
    log_probs: list[list[float]] = [[] for _ in range(B)]
    rows, left = list(range(B)), torch.tensor(limits, device=device)
    state = model.start(memory, max(limits, default=0))
    y = torch.full((B, 1), START, device=device)
    while rows:
        hidden, state, _ = model.step(y, state, memory)
        scores = model.logits(hidden[:, 0]).float().log_softmax(-1)
        scores[:, [PAD, START]] = -torch.inf
        left = left - 1
        best = torch.where(left > 0, scores.argmax(-1), END)
        chosen = scores.gather(1, best[:, None])[:, 0].tolist()
        for row, word, log_prob in zip(rows, best.tolist(), chosen, strict=True):
            ids[row].append(word)
            log_probs[row].append(log_prob)
        going = (best != END).nonzero()[:, 0]
        if len(going) < len(rows):
            rows = [rows[i] for i in going.tolist()]
            state, memory, best, left = state.select(going), memory.select(going), best[going], left[going]
        y = best[:, None]
    return [Hypothesis(tuple(i), tuple(p)) for i, p in zip(ids, log_probs, strict=True)]
