"""Guided alignment (Chen et al. 2016, Garg et al. 2019): given links between words teach attention where to look.

Of every target token t that has links, a_tj is 1 / n for the n source tokens j it is linked to, and 0 for others. The
loss is the cross-entropy -Σ_j a_tj log α_tj of the weights of chosen heads. It is added up over linked tokens and
divided by all target tokens, as the loss of the words is, so that neither depends on how tokens are put into batches.

A Transformer's step that reads y_t knows for which word it looks, the one that writes it has to guess: that one makes
three times as many errors (docs/train.md). An RNN has one attention only, and what it finds writes the word; so it is
guided at that step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from heedful.config import Config, FixedConfig, TransformerConfig
from heedful.data import Batch
from heedful.errors import ConfigError
from heedful.models import Look, Network
from heedful.readout import Readout

__all__ = ["Guide", "agreement", "guide_of", "links_loss", "wanted_weights"]

THRESHOLD = 0.3  # of the largest weight of a word, from which on another is a link, too
LEAST = 1e-30  # of a weight: its logarithm and the gradient of that are finite in fp32


@dataclass(frozen=True)
class Guide:
    """What is guided, and how much: the share of the loss, one layer, its first heads, and the step that is read.

    `late` says that the step after the one that writes a token is guided: the one that reads it.
    """

    weight: float
    look: Look
    heads: int
    late: bool

    def __str__(self) -> str:
        where = f"layer {(self.look.layer or 0) + 1}, {self.heads} head{'s' * (self.heads > 1)}"
        return f"{where}, training.guided={self.weight:g}"

    @property
    def readout(self) -> Readout:
        """How links are read from a model that was guided: where it was guided to look.

        A word with several links has its weight spread over them, hence the threshold.
        """
        heads, step = tuple(range(1, self.heads + 1)), "next" if self.late else "same"
        return Readout((self.look.layer or 0) + 1, heads, step, threshold=THRESHOLD, chosen="guided by given links")

    def seen(self, weights: Tensor) -> Tensor:
        """Return the weights of the guided heads.  (B, 1, H, T, S) -> (B, heads, T, S)."""
        return weights[:, 0, : self.heads]


def guide_of(config: Config) -> Guide | None:
    """Return how given links guide a model with such settings; None when they are to be ignored."""
    training, model = config.training, config.model
    if not training.guided:
        return None
    if isinstance(model, FixedConfig):
        raise ConfigError("links guide attention, but model.family=fixed has none; choose rnn or transformer")
    layers, heads = (model.depth, model.heads) if isinstance(model, TransformerConfig) else (1, 1)
    for name, wanted, most in (("layer", training.guided_layer, layers), ("heads", training.guided_heads, heads)):
        if wanted > most:
            what = {"layer": "layers with attention to the source", "heads": "heads in a layer"}[name]
            raise ConfigError(f"training.guided_{name} is {wanted}, but the model has {most} {what}")
    layer = (training.guided_layer or max(1, layers - 1)) - 1
    late = training.guided_step == "next" or (training.guided_step == "auto" and isinstance(model, TransformerConfig))
    return Guide(training.guided, Look(layer=layer), training.guided_heads or heads, late)


def wanted_weights(links: Tensor, shape: tuple[int, int, int], late: bool) -> Tensor:
    """Return the weights that links ask for.  links (N,), places in an array (B, T, S) -> (B, T, S).

    Rows sum to 1, or are zeros where a token has no links. With `late` they stand one step later.
    """
    B, T, S = shape
    flat = torch.zeros(B * T * S + 1, device=links.device)  # the last is for places that are none
    wanted = flat.index_fill(0, links, 1.0)[:-1].view(B, T, S)
    if late:  # the last token is </s>, which has no links and is not read
        wanted = F.pad(wanted[:, :-1], (0, 0, 1, 0))
    return wanted / wanted.sum(-1, keepdim=True).clamp(min=1.0)


def links_loss(weights: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy of all linked tokens, summed, and how many there are.

    weights (P·B, heads, T, S): P passes over the same sentences, whose mean is taken, as that of the heads;
    wanted (B, T, S).
    """
    passes = weights.shape[0] // wanted.shape[0]
    seen = weights.float().clamp(min=LEAST).log().mean(1).view(passes, *wanted.shape).mean(0)
    return -(wanted * seen).sum(), wanted.sum()


def agreement(model: Network, batch: Batch, guide: Guide) -> tuple[Tensor, Tensor]:
    """Return how many linked tokens look most at a token they are linked to, and how many linked tokens there are."""
    memory = model.encode(batch.x, batch.x != 0)
    y = batch.y[:, :-1]
    weights = model.step(y, model.start(memory, y.shape[1]), memory, guide.look).weights
    if weights is None or batch.links is None:
        return torch.zeros(()), torch.zeros(())
    wanted = wanted_weights(batch.links, (*y.shape, batch.x.shape[1]), guide.late)
    best = guide.seen(weights).mean(1).argmax(-1, keepdim=True)
    return (wanted.gather(-1, best) > 0).sum(), wanted.sum()
