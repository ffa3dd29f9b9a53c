"""Losses as named sums: cross-entropy of the tokens, plus auxiliary losses by name.

An auxiliary loss is a class and an entry of `AUXILIARY` (CONTRIBUTING.md, "Add a loss"); `guided` is an example.

Cross-entropy (with label smoothing and R-Drop) computes its gradient in the memory of the logits. The gradient is as
large as the logits, (tokens, vocabulary), by far the largest tensor of a step. So it is computed at once and written
over them: a few rows at a time on the CPU, so that they stay in its cache, and by one kernel on a GPU
(`heedful.fused.triton.token_loss`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from heedful.config import Config, FixedConfig
from heedful.errors import ConfigError, choose
from heedful.fused.triton.policy import usable
from heedful.fused.triton.token_loss import scaled_, token_losses
from heedful.models import NeedWeights, Network
from heedful.training.callbacks import Progress
from heedful.training.guided import guided_attention


class DecoderOutputs(NamedTuple):
    """The inputs of an auxiliary loss: the batch, and the decoder's outputs for it by teacher forcing.

    keep (B, S) are the source positions that are no padding, the last of them `</s>`; y (B, T) are the tokens to
    predict, of which 0 is padding. hidden (P·B, T, D) are the decoder's
    outputs, the inputs of `model.logits`, and weights (P·B, L, H, T, S) its attention to the source, if a loss needs
    it; P is 2 with R-Drop, which runs the batch twice, otherwise 1. links (N,) are the positions of links in a
    flattened array (B, T, S), if the pairs have links.
    """

    model: Network
    keep: Tensor
    y: Tensor
    hidden: Tensor
    weights: Tensor | None
    links: Tensor | None

    def attention(self, need_weights: NeedWeights) -> Tensor:
        """Return the attention weights that a loss needs: those of one layer, or of all."""
        assert self.weights is not None, "auxiliary_losses rejects losses that a model has no weights for"
        if need_weights.layer is None or self.weights.shape[1] == 1:
            return self.weights
        layer = need_weights.layer_of(self.weights.shape[1])
        return self.weights[:, layer : layer + 1]


class AuxiliaryLoss(Protocol):
    """A loss that is added to the cross-entropy, times its weight. It must not read values back from the device."""

    @property
    def weight(self) -> float:
        """The factor of the loss in the total."""
        ...

    @property
    def need_weights(self) -> NeedWeights | None:
        """The attention weights that it needs; None: none."""
        ...

    def __call__(self, outputs: DecoderOutputs) -> tuple[Tensor, Tensor]:
        """Return the loss as a sum, and the number of items, mostly target tokens, that it is the sum of.

        The gradient divides the sum by the target tokens of the update, as for the cross-entropy; the value that is
        logged is the sum divided by the number.
        """
        ...


class DoublyStochastic(NamedTuple):
    """Doubly stochastic attention (Xu et al. 2015): Σ_j (1 - Σ_t α_tj)², so that no region of an image is forgotten.

    α are the mean weights of all layers and heads; j are the source positions without `</s>`.
    """

    weight: float

    @property
    def need_weights(self) -> NeedWeights:
        """The weights of all layers."""
        return NeedWeights()

    def __call__(self, outputs: DecoderOutputs) -> tuple[Tensor, Tensor]:
        """Return the loss summed over sentences, and their number."""
        written = outputs.y != 0
        weights = outputs.attention(self.need_weights).float().mean((1, 2))  # (P·B, T, S)
        passes = weights.shape[0] // len(written)
        total = (weights * written.repeat(passes, 1)[..., None]).sum(1)
        positions = torch.arange(total.shape[1], device=total.device)
        ends = 1 - getattr(outputs.model, "unread", 0)  # </s> is no word; it may be masked already
        real = (positions < outputs.keep.sum(1, keepdim=True) - ends).repeat(passes, 1)
        sentences = written.any(1)
        return ((1 - total).square() * real * sentences.repeat(passes)[:, None]).sum() / passes, sentences.sum()


# The functions that build each auxiliary loss from the settings and its weight. A run uses those with a weight above 0.
# To add one, see CONTRIBUTING.md, "Add a loss".
AUXILIARY: dict[str, Callable[[Config, float], AuxiliaryLoss]] = {
    "guided": guided_attention,
    "doubly_stochastic": lambda config, weight: DoublyStochastic(weight),
}


def auxiliary_losses(config: Config, linked: bool = False) -> dict[str, AuxiliaryLoss]:
    """Return the auxiliary losses of a run by name; `linked`: the pairs have links between words, as `guided` needs.

    Raises ConfigError for an unknown name in `training.losses`, and for a loss that the model cannot have.
    """
    weights = {"guided": config.training.guided} | _weights(config)
    if clash := sorted(set(AUXILIARY) & set(Progress._fields)):
        raise ConfigError(f"no auxiliary loss may be called {clash[0]}: metrics.jsonl has another value of this name")
    for name in weights:
        choose("loss in training.losses", name, AUXILIARY)
    if not linked:
        del weights["guided"]
    losses = {name: AUXILIARY[name](config, weight) for name, weight in weights.items() if weight}
    if isinstance(config.model, FixedConfig):
        for name in (name for name, loss in losses.items() if loss.need_weights is not None):
            raise ConfigError(f"loss {name} needs attention weights, but model.family=fixed has no attention")
    return losses


def _weights(config: Config) -> dict[str, float]:
    """Return `training.losses`, such as "coverage=0.1,entropy=0.5", by name."""
    parts = (part.partition("=") for part in config.training.losses.split(",") if part)
    return {name: float(weight) for name, _, weight in parts}


def attention_needed(losses: Iterable[AuxiliaryLoss]) -> NeedWeights | None:
    """Return the attention weights that losses need together: those of one layer, or of all if they differ."""
    needed = {loss.need_weights for loss in losses} - {None}
    if len({need_weights.self_attention for need_weights in needed if need_weights is not None}) > 1:
        raise ConfigError("losses of self-attention and of attention to the source cannot be combined")
    return needed.pop() if len(needed) == 1 else NeedWeights() if needed else None


ROWS = 32  # at a time on the CPU: about a megabyte of scores


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        scores: Tensor,
        tokens: Tensor,
        weights: Tensor,
        smoothing: float,
        rdrop: float,
    ) -> tuple[Tensor, Tensor]:
        ctx.fused = scores.dtype != torch.float64 and usable(scores)
        work = token_losses if ctx.fused else _in_parts
        losses, correct = work(scores, tokens, weights, smoothing, rdrop, ctx.needs_input_grad[0])
        ctx.save_for_backward(scores)
        ctx.mark_non_differentiable(correct)
        return losses.sum(), correct

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None, None, None]:  # noqa: ANN401
        (scores,) = ctx.saved_tensors
        scores_gradient = scaled_(scores, gradient) if ctx.fused else scores.mul_(gradient)
        return scores_gradient, None, None, None, None


def _in_parts(
    scores: Tensor, tokens: Tensor, weights: Tensor, smoothing: float, rdrop: float, learning: bool
) -> tuple[Tensor, Tensor]:
    """Return weights_i · loss_i, and which tokens had the best score.  scores (N, V) -> (N,) each.

    The gradient is written over the scores, unless `learning` is False, as in a validation.
    """
    losses = scores.new_empty(len(scores))
    correct = torch.empty(len(scores), dtype=torch.bool, device=scores.device)
    passes = 2 if rdrop else 1  # with R-Drop, both are computed together
    s, out, hit, tokens, factors = (
        t.view(passes, -1, *t.shape[1:]) for t in (scores, losses, correct, tokens, weights)
    )
    rows = ROWS if scores.device.type == "cpu" else s.shape[1]
    for begin in range(0, s.shape[1], rows):
        part = slice(begin, begin + rows)
        _part(s[:, part], tokens[:, part], factors[:, part], smoothing, rdrop, out[:, part], hit[:, part], learning)
    return losses * weights, correct


def _part(
    s: Tensor,
    tokens: Tensor,
    weights: Tensor,
    smoothing: float,
    rdrop: float,
    losses: Tensor,
    correct: Tensor,
    learning: bool,
) -> None:
    """Compute losses, and the gradient over the scores.  s (P, n, V), tokens (P, n), weights (P, n), P passes."""
    V = s.shape[-1]
    index = tokens[..., None]
    picked = s.gather(-1, index)
    torch.eq(picked[..., 0], s.amax(-1), out=correct)
    average = s.mean(-1) if smoothing else 0.0
    lse = torch.logsumexp(s, -1)
    losses.copy_(lse - (1 - smoothing) * picked[..., 0] - smoothing * average)
    if not (learning or rdrop):
        return
    s.sub_(lse[..., None])  # log p
    if rdrop:
        log_p = s.clone()
        p = s.exp_()
        difference = log_p[0] - log_p[1]
        kl = torch.stack([(p[0] * difference).sum(-1), -(p[1] * difference).sum(-1)])  # KL(p¹‖p²), KL(p²‖p¹)
        losses += rdrop / 4 * kl.sum(0)
        # d/ds¹ J = ½(p¹(log p¹ - log p² - KL(p¹‖p²)) + p¹ - p²), and with both exchanged.
        signs = torch.stack([difference, -difference])
        kl_gradient = p * (signs - kl[..., None]) + (p - p.flip(0))
        s.add_(kl_gradient, alpha=rdrop / 2)  # half of J is in the rows of each pass
    else:
        s.exp_()
    if smoothing:
        s.sub_(smoothing / V)
    s.scatter_add_(-1, index, torch.full_like(picked, smoothing - 1))
    s.mul_(weights[..., None])


def cross_entropy(
    scores: Tensor, tokens: Tensor, weights: Tensor, smoothing: float = 0.0, rdrop: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return Σ_i weights_i · loss_i, and which tokens had the best score.  scores (N, V), tokens, weights (N,).

    loss_i = (1 - ε)(-log p_i) + ε · mean over the vocabulary of -log p. The scores must be finite; they are
    overwritten. A token of weight 0 has no loss. A tie for the best score counts as correct.

    With R-Drop (Liang et al. 2021) the first and the second half of the rows are two passes over the same tokens with
    different dropout, and each row's loss grows by α/2 · J, J = ½(KL(p¹‖p²) + KL(p²‖p¹)): half of the paper's,
    as everything here is the mean of the two passes.
    """
    # Half precision is too coarse for PyTorch's sums; and a gradient in fp16 could vanish.
    wide = scores.dtype in (torch.float32, torch.float64) or (scores.dtype == torch.bfloat16 and usable(scores))
    exact = scores if wide else scores.float()
    with torch.autocast(scores.device.type, enabled=False):
        return _CrossEntropy.apply(exact, tokens, weights, smoothing, rdrop)  # type: ignore[no-any-return, no-untyped-call]
