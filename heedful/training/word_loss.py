"""Cross-entropy with label smoothing, and R-Drop, with their gradient worked out in the place of the scores.

The loss is the last thing that happens to the scores, and their gradient is as large as they are: (words, vocabulary),
by far the largest tensor of a step. So the gradient is worked out at once and written over them, a few rows at a time
on the CPU, so that they stay in its cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

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
        losses = scores.new_empty(len(scores))
        right = torch.empty(len(scores), dtype=torch.bool, device=scores.device)
        if rdrop:
            # Both passes of the same word are worked on together.
            views = [t.view(2, -1, *t.shape[1:]) for t in (scores, losses, right)]
            words, weights = words.view(2, -1), weights.view(2, -1)
        else:
            views = [t[None] for t in (scores, losses, right)]
            words, weights = words[None], weights[None]
        n = views[0].shape[1]
        rows = ROWS if scores.device.type == "cpu" else n
        for begin in range(0, n, rows):
            part = slice(begin, begin + rows)
            s, out, hit = (v[:, part] for v in views)
            _part(s, words[:, part], weights[:, part], smoothing, rdrop, out, hit)
        ctx.save_for_backward(scores)
        ctx.mark_non_differentiable(right)
        return (losses * weights.flatten()).sum(), right

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None, None, None]:  # noqa: ANN401
        (scores,) = ctx.saved_tensors
        return scores.mul_(gradient), None, None, None, None


def _part(
    s: Tensor, words: Tensor, weights: Tensor, smoothing: float, rdrop: float, losses: Tensor, right: Tensor
) -> None:
    """Work out losses, and the gradient over the scores.  s (P, n, V), words (P, n), weights (P, n), P passes."""
    V = s.shape[-1]
    index = words[..., None]
    picked = s.gather(-1, index)
    torch.eq(picked[..., 0], s.amax(-1), out=right)
    average = s.mean(-1) if smoothing else 0.0
    lse = torch.logsumexp(s, -1)
    losses.copy_(lse - (1 - smoothing) * picked[..., 0] - smoothing * average)
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
    exact = scores if scores.dtype in (torch.float32, torch.float64) else scores.float()
    with torch.autocast(scores.device.type, enabled=False):
        return _WordLoss.apply(exact, words, weights, smoothing, rdrop)  # type: ignore[no-any-return, no-untyped-call]
