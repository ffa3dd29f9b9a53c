"""Cross-entropy with label smoothing, and R-Drop, with their gradient worked out in the place of the scores.

The loss is the last thing that happens to the scores, and their gradient is as large as they are: (words, vocabulary),
by far the largest tensor of a step. So the gradient is worked out at once and written over them, a few rows at a time
on the CPU, so that they stay in its cache, and by one kernel on a GPU (`heedful.fused.triton.token_loss`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from heedful.fused.triton import scaled_, token_losses, usable

__all__ = ["word_loss"]

ROWS = 32  # at a time on the CPU: about a megabyte of scores


class _WordLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        scores: Tensor,
        words: Tensor,
        weights: Tensor,
        smoothing: float,
        rdrop: float,
    ) -> tuple[Tensor, Tensor]:
        ctx.fused = scores.dtype != torch.float64 and usable(scores)
        work = token_losses if ctx.fused else _in_parts
        losses, right = work(scores, words, weights, smoothing, rdrop, ctx.needs_input_grad[0])
        ctx.save_for_backward(scores)
        ctx.mark_non_differentiable(right)
        return losses.sum(), right

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None, None, None]:  # noqa: ANN401
        (scores,) = ctx.saved_tensors
        slope = scaled_(scores, gradient) if ctx.fused else scores.mul_(gradient)
        return slope, None, None, None, None


def _in_parts(
    scores: Tensor, words: Tensor, weights: Tensor, smoothing: float, rdrop: float, learning: bool
) -> tuple[Tensor, Tensor]:
    """Return weights_i · loss_i, and which words had the best score.  scores (N, V) -> (N,) each.

    The gradient is written over the scores; when nobody learns from it, as in a validation, there is no need for it.
    """
    losses = scores.new_empty(len(scores))
    right = torch.empty(len(scores), dtype=torch.bool, device=scores.device)
    passes = 2 if rdrop else 1  # of R-Drop both are worked on together
    s, out, hit, words, heavy = (t.view(passes, -1, *t.shape[1:]) for t in (scores, losses, right, words, weights))
    rows = ROWS if scores.device.type == "cpu" else s.shape[1]
    for begin in range(0, s.shape[1], rows):
        part = slice(begin, begin + rows)
        _part(s[:, part], words[:, part], heavy[:, part], smoothing, rdrop, out[:, part], hit[:, part], learning)
    return losses * weights, right


def _part(
    s: Tensor,
    words: Tensor,
    weights: Tensor,
    smoothing: float,
    rdrop: float,
    losses: Tensor,
    right: Tensor,
    learning: bool,
) -> None:
    """Work out losses, and the gradient over the scores.  s (P, n, V), words (P, n), weights (P, n), P passes."""
    V = s.shape[-1]
    index = words[..., None]
    picked = s.gather(-1, index)
    torch.eq(picked[..., 0], s.amax(-1), out=right)
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
        apart = torch.stack([(p[0] * difference).sum(-1), -(p[1] * difference).sum(-1)])  # KL(p¹‖p²), KL(p²‖p¹)
        losses += rdrop / 4 * apart.sum(0)
        # d/ds¹ J = ½(p¹(log p¹ - log p² - KL(p¹‖p²)) + p¹ - p²), and the other way round.
        signs = torch.stack([difference, -difference])
        pull = p * (signs - apart[..., None]) + (p - p.flip(0))
        s.add_(pull, alpha=rdrop / 2)  # J stands, halved, in the rows of both passes
    else:
        s.exp_()
    if smoothing:
        s.sub_(smoothing / V)
    s.scatter_add_(-1, index, torch.full_like(picked, smoothing - 1))
    s.mul_(weights[..., None])


def word_loss(
    scores: Tensor, words: Tensor, weights: Tensor, smoothing: float = 0.0, rdrop: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return Σ_i weights_i · loss_i, and which words had the best score.  scores (N, V), words, weights (N,).

    loss_i = (1 - ε)(-log p_i) + ε · mean over the vocabulary of -log p. The scores must be finite, and are
    written over. A word of weight 0 costs nothing. A tie for the best counts as right.

    With R-Drop (Liang et al. 2021) the first and the second half of the rows are two passes over the same words, with
    other dropout, and each row's loss grows by α/2 · J, J = ½(KL(p¹‖p²) + KL(p²‖p¹)): half of what the paper has, as
    everything here is the mean of the two passes.
    """
    # Half precision is too coarse for PyTorch's sums; and a gradient in fp16 could vanish.
    wide = scores.dtype in (torch.float32, torch.float64) or (scores.dtype == torch.bfloat16 and usable(scores))
    exact = scores if wide else scores.float()
    with torch.autocast(scores.device.type, enabled=False):
        return _WordLoss.apply(exact, words, weights, smoothing, rdrop)  # type: ignore[no-any-return, no-untyped-call]
