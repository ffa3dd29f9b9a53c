"""The loss: cross-entropy with label smoothing, over the tokens that are there."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from heedful.data import Batch
from heedful.models import Seq2Seq

__all__ = ["Loss", "loss"]


class Loss(NamedTuple):
    """The mean loss over tokens, to be minimised; how many tokens there were, and how many the model got right."""

    mean: Tensor
    tokens: int
    right: Tensor


def loss(model: Seq2Seq, batch: Batch, smoothing: float = 0.0) -> Loss:
    """Read a batch by teacher forcing: every y_t is predicted from x and the y before it.

    Padding is taken out before the vocabulary projection, so it costs nothing there and weighs nothing.
    """
    memory = model.encode(batch.x, batch.x != 0)
    state = model.start(memory, batch.y.shape[1] - 1)
    hidden = model.step(batch.y[:, :-1], state, memory).hidden
    wanted = batch.y[:, 1:]
    there = wanted != 0
    words = wanted[there]
    logits = model.logits(hidden[there]).float()
    mean = F.cross_entropy(logits, words, label_smoothing=smoothing)
    with torch.no_grad():  # argmax is far slower than amax on the CPU; a tie for the best counts as right
        right = (logits.gather(1, words[:, None])[:, 0] == logits.amax(-1)).sum()
    return Loss(mean, len(words), right)
