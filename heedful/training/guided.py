"""Guided alignment (Chen et al. 2016, Garg et al. 2019): given links between words teach attention where to look.

Of every target token t that has links, a_tj is 1 / n for the n source tokens j it is linked to, and 0 for others. A
word without links, in a pair that has some, belongs to nothing: it is to look at the source's `</s>`, where a read-out
takes it for a word without links again. The loss is the cross-entropy -Σ_j a_tj log α_tj of the weights of chosen
heads. It is added up over taught tokens and divided by all target tokens, as the loss of the words is, so that neither
depends on how tokens are put into batches.

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
from heedful.text import END, PAD
from heedful.trace.readout import Readout

__all__ = ["Guide", "agreement", "guide_of", "links_loss", "wanted_weights"]

THRESHOLD = 0.3  # of the largest weight of a word, from which on another is a link, too
LEAST = 1e-30  # of a weight: its logarithm and the gradient of that are finite in fp32


@dataclass(frozen=True)
class Guide:
    """What is guided, and how much: the share of the loss, one layer, its first heads, and the step that is read.

    `late` says that the step after the one that writes a token is guided: the one that reads it. With `ends`, words
    without links look at `</s>`; otherwise they are left alone.
    """

    weight: float
    look: Look
    heads: int
    late: bool
    ends: bool = True

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
    ends = training.guided_unlinked == "end"
    return Guide(training.guided, Look(layer=layer), training.guided_heads or heads, late, ends)


def wanted_weights(links: Tensor, x: Tensor, y: Tensor, guide: Guide) -> Tensor:
    """Return the weights that links ask for.  links (N,), x (B, S), y (B, T) -> (B, T, S).

    Links are places in such an array; y are the tokens to be predicted. Rows sum to 1, or are zeros where a token is
    left alone. If the step that reads a token is guided, they stand one step later.
    """
    B, T, S = *y.shape, x.shape[1]
    flat = torch.zeros(B * T * S + 1, device=links.device)  # the last is for places that are none
    wanted = flat.index_fill(0, links, 1.0)[:-1].view(B, T, S)
    if guide.ends:
        linked = wanted.sum(-1) > 0
        alone = ~linked & linked.any(1, keepdim=True) & (y != PAD) & (y != END)
        wanted = wanted + (alone[:, :, None] & (x == END)[:, None, :])
    if guide.late:  # the last token is </s>, which is taught nothing and not read
        wanted = F.pad(wanted[:, :-1], (0, 0, 1, 0))
    return wanted / wanted.sum(-1, keepdim=True).clamp(min=1.0)


def links_loss(weights: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy of all tokens that are taught, summed, and how many there are.

    weights (P·B, heads, T, S): P passes over the same sentences, whose mean is taken, as that of the heads;
    wanted (B, T, S).
    """
    passes = weights.shape[0] // wanted.shape[0]
    seen = weights.float().clamp(min=LEAST).log().mean(1).view(passes, *wanted.shape).mean(0)
    return -(wanted * seen).sum(), wanted.sum()


def agreement(model: Network, batch: Batch, guide: Guide) -> tuple[Tensor, Tensor]:
    """Return how many tokens that are taught look most where they should, and how many there are."""
    memory = model.encode(batch.x, batch.x != 0)
    y = batch.y[:, :-1]
    weights = model.step(y, model.start(memory, y.shape[1]), memory, guide.look).weights
    if weights is None or batch.links is None:
        return torch.zeros(()), torch.zeros(())
    wanted = wanted_weights(batch.links, batch.x, batch.y[:, 1:], guide)
    best = guide.seen(weights).mean(1).argmax(-1, keepdim=True)
    return (wanted.gather(-1, best) > 0).sum(), wanted.sum()
