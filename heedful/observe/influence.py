"""What a word really depended on: the source is changed, and what becomes of the translation is measured.

Attention says where a model looked, not what made it write a word. Two ways to ask for the latter, for any model:
leave a source word out and see how much less probable each target word gets; or take the gradient of each target
word's log-probability by the source words' vectors, times the vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from heedful.data import pad
from heedful.errors import ConfigError
from heedful.models import Network
from heedful.observe.reading import read
from heedful.text import PAD, START

__all__ = ["NAMES", "WAYS", "Agreement", "agreement", "gradient", "leave_one_out", "ranks"]

WAYS = ("leave-one-out", "gradient")
NAMES = {"leave-one-out": "leave-one-out", "gradient": "gradient × input"}  # what they are called to people
ROWS = 2048  # tokens at a time


def leave_one_out(
    model: Network, x: Sequence[int], y: Sequence[int], words: Sequence[tuple[int, int]]
) -> NDArray[np.float32]:
    """Return by how much each target token gets less probable when a source word is left out.  (T, words).

    x and y are the ids of a sentence and its translation, each with `</s>`; `words` are the tokens `first:last` of each
    source word. What makes a token more probable when it is left out counts as nothing. `</s>` is never left out: 0.
    """
    variants = [tuple(x)]
    variants += [(*x[:first], *x[last:]) for first, last in words if last < len(x)]
    found: list[NDArray[np.float32]] = []
    device = next(model.parameters()).device
    some = max(1, ROWS // max(len(x), len(y)))
    for begin in range(0, len(variants), some):
        part = variants[begin : begin + some]
        ids = pad(part).to(device)
        with torch.inference_mode():
            memory = model.encode(ids, ids != PAD)
        found += [reading.log_probs for reading in read(model, memory, [y] * len(part), weights=False)]
    whole, *without = found
    drops = np.zeros((len(y), len(words)), dtype=np.float32)
    left_out = [w for w, (_, last) in enumerate(words) if last < len(x)]
    for w, log_probs in zip(left_out, without, strict=True):
        drops[:, w] = np.maximum(whole - log_probs, 0)
    return drops


def gradient(model: Network, x: Sequence[int], y: Sequence[int]) -> NDArray[np.float32]:
    """Return |Σ_d e_jd ∂ log p(y_t)/∂e_jd|, what each source token's vector e_j adds to each target token.  (T, S)."""
    device = next(model.parameters()).device
    rows = []
    some = max(1, ROWS // max(len(x), len(y)))
    table = _source_embedding(model)
    for begin in range(0, len(y), some):
        count = min(some, len(y) - begin)
        # Every row is the same sentence, and is asked for another of its tokens.
        ids = torch.tensor(x, device=device).expand(count, -1)
        with torch.enable_grad():
            e = table.weight.detach()[ids].clone().requires_grad_()
            with _vectors(table, e):
                # Word number i of the batch has the vector i + 1; 0 stays what it was, padding.
                numbers = torch.arange(1, 1 + ids.numel(), device=device).view_as(ids)
                memory = model.encode(numbers, torch.ones_like(ids, dtype=torch.bool))
            read_ = torch.tensor((START, *y), device=device).expand(count, -1)
            hidden = model.step(read_[:, :-1], model.start(memory, len(y)), memory).hidden
            picked = torch.arange(begin, begin + count, device=device)
            each = torch.arange(count, device=device)
            shares = model.logits(hidden[each, picked]).float()
            shares[:, START] = -torch.inf  # as in decoding: `<s>` can follow nothing
            total = shares.log_softmax(-1)[each, read_[each, picked + 1]].sum()
            (slope,) = torch.autograd.grad(total, e)
        rows.append((slope * e.detach()).sum(-1).abs().float().cpu().numpy())
    return np.concatenate(rows)


def _source_embedding(model: Network) -> nn.Embedding:
    words = getattr(model, "source_words", None)
    if not isinstance(words, nn.Embedding):
        raise ConfigError("gradients are taken of one model; an ensemble has several: ask each of them")
    return words


@contextmanager
def _vectors(table: nn.Embedding, e: Tensor) -> Iterator[None]:
    """Let a table hold the vectors of a batch, e (B, S, D), as its rows 1, 2, …, while the source is read."""
    own = table._parameters.pop("weight")
    padding = torch.zeros(1, e.shape[-1], dtype=e.dtype, device=e.device)
    table.weight = torch.cat([padding, e.flatten(0, 1)])
    try:
        yield
    finally:
        del table.weight
        table.register_parameter("weight", own)


class Agreement(NamedTuple):
    """How far weights agree with what words depended on, as means over target words.

    `correlation` is Spearman's rank correlation over the source words; `same` how often both name the same source word
    first; `words` how many target words were counted.
    """

    correlation: float
    same: float
    words: int


def agreement(weights: NDArray[np.floating[Any]], influence: NDArray[np.floating[Any]]) -> Agreement:
    """Compare two matrices (target words, source words), row by row; rows that are all alike cannot be compared."""
    found = []
    for one, other in zip(weights, influence, strict=True):
        if len(one) > 1 and np.ptp(one) > 0 and np.ptp(other) > 0:
            found.append((float(np.corrcoef(ranks(one), ranks(other))[0, 1]), int(one.argmax()) == int(other.argmax())))
    if not found:
        return Agreement(float("nan"), float("nan"), 0)
    correlation, same = np.mean(np.array(found, dtype=float), axis=0)
    return Agreement(float(correlation), float(same), len(found))


def ranks(values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return the rank of each value; those alike share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: NDArray[np.float64] = (last - (counts - 1) / 2)[inverse]
    return means
