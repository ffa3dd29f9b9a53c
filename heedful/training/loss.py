"""The loss of a batch, read by teacher forcing: every y_t is predicted from x and the y before it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.data import Batch
from heedful.models import Network
from heedful.training.guided import Guide, links_loss, wanted_weights
from heedful.training.word_loss import word_loss

__all__ = ["Learner", "Loss", "loss"]


class Loss(NamedTuple):
    """The mean loss over tokens, to be minimised; how many tokens there were, and how many the model got right."""

    mean: Tensor
    tokens: int
    right: Tensor


class Learner(nn.Module):
    """A model with its loss: what DistributedDataParallel wraps, and what a graph records."""

    def __init__(self, model: Network, smoothing: float = 0.0, rdrop: float = 0.0, guide: Guide | None = None) -> None:
        super().__init__()
        self.model, self.smoothing, self.rdrop, self.guide = model, smoothing, rdrop, guide

    def forward(self, x: Tensor, y: Tensor, share: Tensor, links: Tensor | None = None) -> tuple[Tensor, ...]:
        """Return the sum of the tokens' losses times `share`, and how many tokens were right.  x (B, S), y (B, T).

        With links, theirs is part of the loss, and is told after it: summed over the tokens that it teaches, and how
        many those are.

        On the CPU, padding is taken out before the vocabulary projection, so it costs nothing there. Elsewhere that
        would need the device's answer how much of it there is; it is given the weight 0 instead.
        """
        passes = 2 if self.rdrop and self.training else 1
        x, y = x.repeat(passes, 1), y.repeat(passes, 1)
        memory = self.model.encode(x, x != 0)
        state = self.model.start(memory, y.shape[1] - 1)
        guide = None if links is None else self.guide
        hidden, _, seen = self.model.step(y[:, :-1], state, memory, None if guide is None else guide.look)
        wanted = y[:, 1:]
        there = wanted != 0
        if x.device.type == "cpu":
            hidden, words = hidden[there], wanted[there]
            weights = (share / passes).expand(len(words))
        else:
            hidden, words = hidden.flatten(0, 1), wanted.flatten()
            weights = there.flatten() * (share / passes)
        total, right = word_loss(
            self.model.logits(hidden), words, weights, self.smoothing, self.rdrop if passes == 2 else 0.0
        )
        right = (right & (weights > 0)).sum() / passes
        if guide is None or links is None or seen is None:
            return total, right
        B = x.shape[0] // passes
        wished = wanted_weights(links, x[:B], wanted[:B], guide)
        found, linked = links_loss(guide.seen(seen), wished)
        return total + found * (share * guide.weight), right, found.detach(), linked


def loss(model: Network, batch: Batch, smoothing: float = 0.0) -> Loss:
    """Return the mean loss of one batch."""
    learner = Learner(model, smoothing)
    tokens = batch.tokens
    mean, right, *_ = learner(batch.x, batch.y, torch.ones((), device=batch.x.device) / tokens)
    return Loss(mean, tokens, right)
