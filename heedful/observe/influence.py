"""Influence: what a target word depended on, measured by changing the source.

Attention weights are no proof of what made a model write a word. Two ways to measure that, for any model: leave a
source word out and compute by how much less probable each target word gets; or take the gradient of each target word's
log-probability by the source words' vectors, times the vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from heedful.errors import ConfigError, choose
from heedful.models import Network
from heedful.observe.reading import read_attention
from heedful.text import PAD, START, pad

WAYS = ("leave-one-out", "gradient")
NAMES = {"leave-one-out": "leave-one-out", "gradient": "gradient × input"}  # as shown to users
LABELS = {
    "leave-one-out": "leave-one-out: by how much less probable a word gets when a source word is left out",
    "gradient": "gradient × input: the slope of a word's log-probability by each source word's vector, times it",
}
ROWS = 2048  # tokens at a time


def influence(
    model: Network, x: Sequence[int], y: Sequence[int], words: Sequence[tuple[int, int]], way: str
) -> NDArray[np.float32]:
    """Return what each target token depended on, as shares of the source tokens; a row without any is 0.  (T, S).

    x, y and `words` as in `leave_one_out`, whose result is divided equally among the tokens of a word.
    """
    choose("way", way, WAYS)
    if way == "gradient":
        tokens = gradient(model, x, y)
    else:
        tokens = np.zeros((len(y), len(x)), dtype=np.float32)
        by_word = leave_one_out(model, x, y, words)
        for w, (first, last) in enumerate(words):
            tokens[:, first:last] = by_word[:, w : w + 1] / max(1, last - first)
    sums = tokens.sum(1, keepdims=True)
    shares: NDArray[np.float32] = np.divide(tokens, sums, out=np.zeros_like(tokens), where=sums > 0)
    return shares


def leave_one_out(
    model: Network, x: Sequence[int], y: Sequence[int], words: Sequence[tuple[int, int]]
) -> NDArray[np.float32]:
    """Return by how much each target token gets less probable when a source word is left out.  (T, words).

    x and y are the ids of a sentence and its translation, each with `</s>`; `words` are the tokens `first:last` of each
    source word. It is 0 where a token gets more probable, and for `</s>`, which is never left out.
    """
    variants = [tuple(x)]
    variants += [(*x[:first], *x[last:]) for first, last in words if last < len(x)]
    log_probs: list[NDArray[np.float32]] = []
    device = next(model.parameters()).device
    some = max(1, ROWS // max(len(x), len(y)))
    for begin in range(0, len(variants), some):
        part = variants[begin : begin + some]
        ids = torch.from_numpy(pad(part)).to(device)
        with torch.inference_mode():
            memory = model.encode(ids, ids != PAD)
        readings = read_attention(model, memory, [y] * len(part), weights=False)
        log_probs += [one.log_probs for one in readings if one.log_probs is not None]
    whole, *without = log_probs
    drops = np.zeros((len(y), len(words)), dtype=np.float32)
    left_out = [w for w, (_, last) in enumerate(words) if last < len(x)]
    for w, changed in zip(left_out, without, strict=True):
        drops[:, w] = np.maximum(whole - changed, 0)
    return drops


def gradient(model: Network, x: Sequence[int], y: Sequence[int]) -> NDArray[np.float32]:
    """Return |Σ_d e_jd ∂ log p(y_t)/∂e_jd|, what each source token's vector e_j adds to each target token.  (T, S)."""
    device = next(model.parameters()).device
    rows = []
    some = max(1, ROWS // max(len(x), len(y)))
    table = _source_embedding(model)
    for begin in range(0, len(y), some):
        count = min(some, len(y) - begin)
        # Every row is the same sentence, for another of its tokens.
        ids = torch.tensor(x, device=device).expand(count, -1)
        with torch.enable_grad():
            e = table.weight.detach()[ids].clone().requires_grad_()
            with _vectors(table, e):
                # Token number i of the batch has the vector i + 1; 0 stays padding.
                numbers = torch.arange(1, 1 + ids.numel(), device=device).view_as(ids)
                memory = model.encode(numbers, torch.ones_like(ids, dtype=torch.bool))
            target = torch.tensor((START, *y), device=device).expand(count, -1)
            hidden = model.step(target[:, :-1], model.start(memory, len(y)), memory).hidden
            picked = torch.arange(begin, begin + count, device=device)
            each = torch.arange(count, device=device)
            logits = model.logits(hidden[each, picked]).float()
            logits[:, START] = -torch.inf  # as in decoding: `<s>` follows nothing
            total = logits.log_softmax(-1)[each, target[each, picked + 1]].sum()
            (slope,) = torch.autograd.grad(total, e)
        rows.append((slope * e.detach()).sum(-1).abs().float().cpu().numpy())
    return np.concatenate(rows)


def _source_embedding(model: Network) -> nn.Embedding:
    words = getattr(model, "source_words", None)
    if not isinstance(words, nn.Embedding):
        raise ConfigError("an ensemble has no gradient of its own; use one of its models")
    return words


@contextmanager
def _vectors(table: nn.Embedding, e: Tensor) -> Iterator[None]:
    """Let a table hold the vectors of a batch, e (B, S, D), as its rows 1, 2, …, while the source is encoded."""
    own = table._parameters.pop("weight")
    padding = torch.zeros(1, e.shape[-1], dtype=e.dtype, device=e.device)
    table.weight = torch.cat([padding, e.flatten(0, 1)])
    try:
        yield
    finally:
        del table.weight
        table.register_parameter("weight", own)


class Agreement(NamedTuple):
    """How far weights agree with influence, as means over target words.

    `correlation` is Spearman's rank correlation over the source words; `same` how often both name the same source word
    first; `words` how many target words were counted.
    """

    correlation: float
    same: float
    words: int


def agreement(weights: NDArray[np.floating[Any]], influence: NDArray[np.floating[Any]]) -> Agreement:
    """Compare two matrices (target words, source words), row by row; rows of equal values are skipped."""
    pairs = []
    for one, other in zip(weights, influence, strict=True):
        if len(one) > 1 and np.ptp(one) > 0 and np.ptp(other) > 0:
            pairs.append((float(np.corrcoef(ranks(one), ranks(other))[0, 1]), int(one.argmax()) == int(other.argmax())))
    if not pairs:
        return Agreement(float("nan"), float("nan"), 0)
    correlation, same = np.mean(np.array(pairs, dtype=float), axis=0)
    return Agreement(float(correlation), float(same), len(pairs))


def ranks(values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return the rank of each value; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: NDArray[np.float64] = (last - (counts - 1) / 2)[inverse]
    return means
