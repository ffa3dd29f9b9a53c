"""Cross-entropy with label smoothing, and R-Drop, each row of scores read twice and written once.

The first pass computes the largest score, the log-sum-exp (online: the sum is rescaled whenever the maximum grows) and
the mean; the second computes the gradient, which overwrites the scores. All sums are in fp32, whatever the type of the
scores. The reference is `heedful.training.losses`.
"""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedful.errors import ShapeError
from heedful.fused.triton.launch import kernel, power_of_2

if TYPE_CHECKING:
    import triton.language as tl


KINDS = (torch.float32, torch.bfloat16, torch.float16)
BLOCK = 4096  # scores of a block
PAIR = 2048  # the same for each of two rows


@kernel()
def _single_rows(
    scores, tokens, weights, losses, best, V, row_stride, stride, smoothing, LEARN: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    row = tl.program_id(0).to(tl.int64)
    at = scores + row * row_stride
    columns = tl.arange(0, BLOCK)
    weight = tl.load(weights + row).to(tl.float32)
    if weight == 0:
        for begin in range(0, V if LEARN else 0, BLOCK):
            c = begin + columns
            tl.store(at + c * stride, tl.zeros([BLOCK], scores.dtype.element_ty), c < V)
        tl.store(losses + row, 0.0)
        tl.store(best + row, 0)
    else:
        token = tl.load(tokens + row)
        # A token out of range has the score NaN, and so has the loss: training stops.
        picked = tl.load(at + token * stride, (token >= 0) & (token < V), float("nan")).to(tl.float32)
        top = -float("inf")
        mass = 0.0
        total = 0.0
        for begin in range(0, V, BLOCK):
            c = begin + columns
            s = tl.load(at + c * stride, c < V, -float("inf")).to(tl.float32)
            higher = tl.maximum(top, tl.max(s, 0))
            mass = mass * tl.exp(top - higher) + tl.sum(tl.exp(s - higher), 0)
            total += tl.sum(tl.where(c < V, s, 0.0), 0)
            top = higher
        lse = top + tl.log(mass) + 0 * picked
        loss = lse - (1 - smoothing) * picked
        if smoothing != 0:
            loss -= smoothing * (total / V)
        tl.store(losses + row, weight * loss)
        tl.store(best + row, picked == top)
        for begin in range(0, V if LEARN else 0, BLOCK):
            c = begin + columns
            s = tl.load(at + c * stride, c < V, -float("inf")).to(tl.float32)
            g = tl.exp(s - lse) - smoothing / V
            g = tl.where(c == token, g + (smoothing - 1), g)
            tl.store(at + c * stride, (weight * g).to(scores.dtype.element_ty), c < V)


@kernel("half")
def _row_pairs(
    scores, tokens, weights, losses, best, half, V, row_stride, stride, smoothing, rdrop,
    LEARN: tl.constexpr, BLOCK: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    other = row + half
    at_1, at_2 = scores + row * row_stride, scores + other * row_stride
    kind = scores.dtype.element_ty
    columns = tl.arange(0, BLOCK)
    weight_1, weight_2 = tl.load(weights + row).to(tl.float32), tl.load(weights + other).to(tl.float32)
    if (weight_1 == 0) & (weight_2 == 0):
        for begin in range(0, V if LEARN else 0, BLOCK):
            c = begin + columns
            tl.store(at_1 + c * stride, tl.zeros([BLOCK], kind), c < V)
            tl.store(at_2 + c * stride, tl.zeros([BLOCK], kind), c < V)
        tl.store(losses + row, 0.0)
        tl.store(losses + other, 0.0)
        tl.store(best + row, 0)
        tl.store(best + other, 0)
    else:
        token_1, token_2 = tl.load(tokens + row), tl.load(tokens + other)
        picked_1 = tl.load(at_1 + token_1 * stride, (token_1 >= 0) & (token_1 < V), float("nan")).to(tl.float32)
        picked_2 = tl.load(at_2 + token_2 * stride, (token_2 >= 0) & (token_2 < V), float("nan")).to(tl.float32)
        top_1, mass_1, total_1, diff_1 = -float("inf"), 0.0, 0.0, 0.0
        top_2, mass_2, total_2, diff_2 = -float("inf"), 0.0, 0.0, 0.0
        for begin in range(0, V, BLOCK):
            c = begin + columns
            s_1 = tl.load(at_1 + c * stride, c < V, -float("inf")).to(tl.float32)
            s_2 = tl.load(at_2 + c * stride, c < V, -float("inf")).to(tl.float32)
            d = tl.where(c < V, s_1 - s_2, 0.0)
            higher_1, higher_2 = tl.maximum(top_1, tl.max(s_1, 0)), tl.maximum(top_2, tl.max(s_2, 0))
            e_1, e_2 = tl.exp(s_1 - higher_1), tl.exp(s_2 - higher_2)
            rescale_1, rescale_2 = tl.exp(top_1 - higher_1), tl.exp(top_2 - higher_2)
            mass_1, mass_2 = mass_1 * rescale_1 + tl.sum(e_1, 0), mass_2 * rescale_2 + tl.sum(e_2, 0)
            # Σ p¹(s¹ - s²), before the division by the mass: KL(p¹‖p²) is that minus lse¹ - lse².
            diff_1, diff_2 = diff_1 * rescale_1 + tl.sum(e_1 * d, 0), diff_2 * rescale_2 + tl.sum(e_2 * d, 0)
            total_1 += tl.sum(tl.where(c < V, s_1, 0.0), 0)
            total_2 += tl.sum(tl.where(c < V, s_2, 0.0), 0)
            top_1, top_2 = higher_1, higher_2
        lse_1, lse_2 = top_1 + tl.log(mass_1) + 0 * picked_1, top_2 + tl.log(mass_2) + 0 * picked_2
        shift = lse_1 - lse_2
        KL_1, KL_2 = diff_1 / mass_1 - shift, shift - diff_2 / mass_2
        kl_term = rdrop / 4 * (KL_1 + KL_2)
        loss_1 = lse_1 - (1 - smoothing) * picked_1 - smoothing * (total_1 / V) + kl_term
        loss_2 = lse_2 - (1 - smoothing) * picked_2 - smoothing * (total_2 / V) + kl_term
        tl.store(losses + row, weight_1 * loss_1)
        tl.store(losses + other, weight_2 * loss_2)
        tl.store(best + row, picked_1 == top_1)
        tl.store(best + other, picked_2 == top_2)
        for begin in range(0, V if LEARN else 0, BLOCK):
            c = begin + columns
            s_1 = tl.load(at_1 + c * stride, c < V, 0.0).to(tl.float32)
            s_2 = tl.load(at_2 + c * stride, c < V, 0.0).to(tl.float32)
            log_1, log_2 = s_1 - lse_1, s_2 - lse_2
            p_1, p_2 = tl.exp(log_1), tl.exp(log_2)
            d = log_1 - log_2
            g_1 = p_1 + rdrop / 2 * (p_1 * (d - KL_1) + p_1 - p_2) - smoothing / V
            g_2 = p_2 + rdrop / 2 * (p_2 * (-d - KL_2) + p_2 - p_1) - smoothing / V
            g_1 = tl.where(c == token_1, g_1 + (smoothing - 1), g_1)
            g_2 = tl.where(c == token_2, g_2 + (smoothing - 1), g_2)
            tl.store(at_1 + c * stride, (weight_1 * g_1).to(kind), c < V)
            tl.store(at_2 + c * stride, (weight_2 * g_2).to(kind), c < V)


@kernel("n")
def _multiply(x, factor, n, BLOCK: tl.constexpr) -> None:
    f = tl.load(factor).to(tl.float32)
    if f != 1:
        i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + i, (tl.load(x + i, i < n).to(tl.float32) * f).to(x.dtype.element_ty), i < n)


def token_losses(
    scores: Tensor,
    tokens: Tensor,
    weights: Tensor,
    smoothing: float = 0.0,
    rdrop: float = 0.0,
    learning: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return weights_i · loss_i, and which tokens scored best.  scores (N, V), tokens, weights (N,) -> (N,) each.

    The definition is `heedful.training.losses`; a row of weight 0 is not read, and counts as not best. With `learning`,
    the gradient overwrites the scores.
    """
    N, V = scores.shape
    if scores.dtype not in KINDS or tokens.shape != (N,) or weights.shape != (N,) or (rdrop and N % 2):
        raise ShapeError(
            "expected scores (N, V) of fp32, bf16 or fp16, tokens (N,) and weights (N,), N even with R-Drop; got "
            f"{tuple(scores.shape)} of {scores.dtype}, {tuple(tokens.shape)} and {tuple(weights.shape)}"
        )
    losses = torch.empty(N, dtype=torch.float32, device=scores.device)
    best = torch.empty(N, dtype=torch.bool, device=scores.device)
    tokens, weights = tokens.contiguous(), weights.contiguous()
    block = min(power_of_2(V), PAIR if rdrop else BLOCK)
    warps = max(1, min(8, block // 256))
    tensors = (scores, tokens, weights, losses, best)
    sizes = (V, *scores.stride(), float(smoothing))
    if N and rdrop:
        _row_pairs[(N // 2,)](*tensors, N // 2, *sizes, float(rdrop), learning, block, num_warps=warps)
    elif N:
        _single_rows[(N,)](*tensors, *sizes, learning, block, num_warps=warps)
    return losses, best


def scaled_(x: Tensor, factor: Tensor) -> Tensor:
    """Multiply by a number on the device, in place; if it is 1, nothing is read or written.  x (…), factor ()."""
    if not x.is_contiguous():
        return x.mul_(factor)
    n = x.numel()
    if n:
        _multiply[((n + BLOCK - 1) // BLOCK,)](x, factor, n, BLOCK)
    return x
