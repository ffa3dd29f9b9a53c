"""Guided attention (Chen et al. 2016, Garg et al. 2019): an auxiliary loss that teaches attention from word links.

For a target token t with links, a_tj is 1 / n for the n source tokens j that it is linked to, and 0 for others. A token
without links, in a pair that has some, attends to the source's `</s>`, which a read-out reads as no link. The loss is
the cross-entropy -Σ_j a_tj log α_tj with the weights of chosen heads. It is summed over the tokens that are taught and
divided by all target tokens, as the cross-entropy of the tokens is, so that neither depends on the batches.

A Transformer's step that reads y_t knows for which token it attends. The step that predicts it does not, and makes
three times as many errors (docs/guide/guided.md). The context of an RNN predicts the token, so it is guided at that
step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from heedful.config import Config, FixedConfig, TransformerConfig
from heedful.data.batches import Batch
from heedful.errors import ConfigError
from heedful.models import NeedWeights, Network
from heedful.models.layers import padding_mask
from heedful.text import END, PAD
from heedful.trace.readout import Readout

if TYPE_CHECKING:
    from heedful.training.losses import DecoderOutputs


THRESHOLD = 0.3  # of the largest weight of a word, from which another weight is a link too
LEAST = 1e-30  # weight: its logarithm and the gradient of that are finite in fp32


@dataclass(frozen=True)
class GuidedAttention:
    """The weight of the loss, and what it teaches: one layer, its first heads, and at which step.

    With `late`, the step that reads a token is guided, one after the step that predicts it. With `ends`, words without
    links attend to `</s>`; otherwise they are ignored.
    """

    weight: float
    need_weights: NeedWeights
    heads: int
    late: bool
    ends: bool = True

    def __str__(self) -> str:
        where = f"layer {(self.need_weights.layer or 0) + 1}, {self.heads} head{'s' * (self.heads > 1)}"
        return f"{where}, training.guided={self.weight:g}"

    def __call__(self, outputs: DecoderOutputs) -> tuple[Tensor, Tensor]:
        """Return the loss summed over the tokens that links teach, and their number."""
        if outputs.links is None:
            zero = outputs.hidden.new_zeros(())
            return zero, zero
        weights = outputs.attention(self.need_weights)
        return links_loss(self.guided_heads(weights), target_weights(outputs.links, outputs.keep, outputs.y, self))

    @property
    def readout(self) -> Readout:
        """The read-out of a model that was trained with this loss: the weights that were guided.

        The weight of a word with several links is spread over them, hence the threshold.
        """
        heads, step = tuple(range(1, self.heads + 1)), "next" if self.late else "same"
        return Readout(
            (self.need_weights.layer or 0) + 1, heads, step, threshold=THRESHOLD, chosen="guided by given links"
        )

    def guided_heads(self, weights: Tensor) -> Tensor:
        """Return the weights of the guided heads.  (B, 1, H, T, S) -> (B, heads, T, S)."""
        return weights[:, 0, : self.heads]


def guided_attention(config: Config, weight: float) -> GuidedAttention:
    """Return the loss for a model with these settings; raises ConfigError for a model that cannot be guided."""
    training, model = config.training, config.model
    if isinstance(model, FixedConfig):
        raise ConfigError("links guide attention, but model.family=fixed has no attention; choose rnn or transformer")
    layers, heads = (model.depth, model.heads) if isinstance(model, TransformerConfig) else (1, 1)
    for name, wanted, most in (("layer", training.guided_layer, layers), ("heads", training.guided_heads, heads)):
        if wanted > most:
            what = {"layer": "layers with attention to the source", "heads": "heads in a layer"}[name]
            raise ConfigError(f"training.guided_{name} is {wanted}, but the model has {most} {what}")
    layer = (training.guided_layer or max(1, layers - 1)) - 1
    late = training.guided_step == "next" or (training.guided_step == "auto" and isinstance(model, TransformerConfig))
    ends = training.guided_unlinked == "end" and getattr(model, "source_end", True)  # nothing attends to one masked
    return GuidedAttention(weight, NeedWeights(layer=layer), training.guided_heads or heads, late, ends)


def target_weights(links: Tensor, keep: Tensor, y: Tensor, guide: GuidedAttention) -> Tensor:
    """Return the attention weights that links teach.  links (N,), keep (B, S), y (B, T) -> (B, T, S).

    Links are positions in such an array; y are the tokens to predict. Rows sum to 1, or are zeros where a token is
    ignored. If the step that reads a token is guided, they stand one step later.
    """
    B, T, S = *y.shape, keep.shape[1]
    flat = torch.zeros(B * T * S + 1, device=links.device)  # the last is for padding of links
    wanted = flat.index_fill(0, links, 1.0)[:-1].view(B, T, S)
    if guide.ends:
        linked = wanted.sum(-1) > 0
        unlinked = ~linked & linked.any(1, keepdim=True) & (y != PAD) & (y != END)
        end = torch.arange(S, device=keep.device) == keep.sum(1, keepdim=True) - 1  # the source's </s>
        wanted = wanted + (unlinked[:, :, None] & end[:, None, :])
    if guide.late:  # the last token is </s>, which has no links and is not read
        wanted = F.pad(wanted[:, :-1], (0, 0, 1, 0))
    return wanted / wanted.sum(-1, keepdim=True).clamp(min=1.0)


def links_loss(weights: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy of all tokens that are taught, summed, and their number.

    weights (P·B, heads, T, S): P passes over the same sentences, whose mean is taken, as that of the heads;
    wanted (B, T, S).
    """
    passes = weights.shape[0] // wanted.shape[0]
    log_weights = weights.float().clamp(min=LEAST).log().mean(1).view(passes, *wanted.shape).mean(0)
    return -(wanted * log_weights).sum(), wanted.sum()


def agreement(model: Network, batch: Batch, guide: GuidedAttention) -> tuple[Tensor, Tensor]:
    """Return how many taught tokens have their largest weight on a linked source token, and the number of all."""
    memory = model.encode(batch.x, padding_mask(batch.x))
    y = batch.y[:, :-1]
    weights = model.step(y, model.start(memory, y.shape[1]), memory, guide.need_weights).weights
    if weights is None or batch.links is None:
        return torch.zeros(()), torch.zeros(())
    wanted = target_weights(batch.links, memory.keep, batch.y[:, 1:], guide)
    best = guide.guided_heads(weights).mean(1).argmax(-1, keepdim=True)
    return (wanted.gather(-1, best) > 0).sum(), wanted.sum()
