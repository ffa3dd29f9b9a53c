"""Weights of scaled dot-product attention from q, k and the log-sum-exp, P = exp(scale·q·k − lse): plain PyTorch.

The definition that the kernels are tested against; it runs wherever they do not. Scores are computed in blocks of at
most `ELEMENTS` (on a GPU `ON_DEVICE`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

ELEMENTS = 1 << 20  # scores of a block
ON_DEVICE = 1 << 23  # the same on a GPU, where a block costs a dozen launches
FAR = 2048.0  # a log-sum-exp beyond it is wrong by more than 6e-5 when it is rounded to fp32
LOW = -1e30  # the score of a masked position: finite, so that 0 · LOW is 0 and not NaN
Index = slice | Tensor


@dataclass(frozen=True)
class Scores:
    """The inputs of scores.  q (B, H, T, C), k (B, G, S, C), where G divides H: H/G heads share their keys.

    `causal`: query t attends to positions 0..t, also where T ≠ S, as in PyTorch. `bias` (B or 1, H or 1, S)
    is added to the scores of a position, -inf where it may not be attended to; `mask` (B or 1, H or 1, T or 1, S or 1)
    is as in `scaled_dot_product_attention`: True for positions to attend to, or numbers to add, -inf for a masked one.
    `level` (B, H, T) is subtracted from all scores of a row: see `needs_level`.
    """

    q: Tensor
    k: Tensor
    scale: float
    causal: bool = False
    bias: Tensor | None = None
    mask: Tensor | None = None
    level: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes of the weights: (B, H, T, S)."""
        return (*self.q.shape[:3], self.k.shape[2])

    @property
    def kind(self) -> torch.dtype:
        """The type in which weights are computed."""
        return torch.float64 if self.q.dtype == torch.float64 else torch.float32

    @property
    def most(self) -> int:
        """How many scores a block may have."""
        return ELEMENTS if self.q.device.type == "cpu" else ON_DEVICE

    def wide(self) -> Scores:
        """Return the same with keys in `kind`, so that they are not converted for every block."""
        return replace(self, k=self.k.to(self.kind))

    def select(self, batch: slice) -> Scores:
        """Return the scores of some sentences."""
        bias, mask, level = (None if x is None else _pick(x, 0, batch) for x in (self.bias, self.mask, self.level))
        return replace(self, q=self.q[batch], k=self.k[batch], bias=bias, mask=mask, level=level)

    def tile(self, batch: slice, heads: Index, rows: Index, columns: Index) -> Tensor:
        """Return a block of scores, -inf for masked positions.  -> (b, h, t, s)."""
        everything = heads == slice(None) if isinstance(heads, slice) else False
        q = self.q[batch][:, heads][:, :, rows].to(self.kind)
        k = self.k[batch][:, :, columns].to(self.kind)
        group = self.q.shape[1] // self.k.shape[1]
        with torch.autocast(q.device.type, enabled=False), exact_products():
            if everything and group > 1:
                # The queries of heads that share keys are one product, so that no key is copied.
                b, h, t, c = q.shape
                s = (q.reshape(b, h // group, group * t, c) @ k.mT).view(b, h, t, -1)
            elif everything:
                s = q @ k.mT
            else:
                own = torch.arange(self.q.shape[1], device=q.device)[heads] // group
                s = q @ k[:, own].mT
        s *= self.scale
        return self._masked(s, batch, heads, rows, columns)

    def _masked(self, s: Tensor, batch: slice, heads: Index, rows: Index, columns: Index) -> Tensor:
        _, _, T, S = self.shape
        if self.bias is not None:
            s += _pick(_pick(_pick(self.bias, 0, batch), 1, heads), 2, columns)[:, :, None]
        if self.mask is not None:
            mask = _pick(_pick(_pick(_pick(self.mask, 0, batch), 1, heads), 2, rows), 3, columns)
            if mask.dtype == torch.bool:
                s.masked_fill_(~mask, -torch.inf)
            else:
                s += mask
                s.masked_fill_(mask == -torch.inf, -torch.inf)
        if self.causal:
            t, j = torch.arange(T, device=s.device)[rows], torch.arange(S, device=s.device)[columns]
            s.masked_fill_(j[None, :] > t[:, None], -torch.inf)
        return s if self.level is None else s.sub_(self.level[batch][:, heads][:, :, rows, None])

    def empty(self) -> Tensor | None:
        """Return which rows have nothing to attend to, or None where every row has something.  -> (B, H, T)."""
        B, H, T, S = self.shape
        if not S or (self.bias is None and self.mask is None):
            return None if S else torch.ones(B, H, T, dtype=torch.bool, device=self.q.device)
        if self.mask is not None and self.bias is None and not self.causal:
            mask = self.mask
            none = ~mask.any(-1) if mask.dtype == torch.bool else mask.amax(-1) == -torch.inf
            return none.expand(B, H, T)
        none = self.q.new_zeros(1, 1, 1, 1).expand(B, H, T, 1)
        bare = replace(self, q=none, k=self.k.new_zeros(B, 1, S, 1), level=None)
        everything = slice(None)
        if self.mask is None or self.mask.shape[2] == 1:
            # Rows differ only in their last position.
            bare = replace(bare, q=bare.q[:, :, :1], causal=False)
            any_kept = (bare.tile(everything, everything, everything, everything) > -torch.inf)[:, :, 0].cumsum(-1) > 0
            last = torch.arange(T, device=self.q.device) if self.causal else torch.full((T,), S, device=self.q.device)
            return ~any_kept[:, :, last.clamp(max=S - 1)]
        empty = torch.empty(B, H, T, dtype=torch.bool, device=self.q.device)
        for batch, rows in blocks(B, H, T, S, self.most):
            empty[batch, :, rows] = (bare.tile(batch, everything, rows, everything) == -torch.inf).all(-1)
        return empty


def _pick(x: Tensor, axis: int, index: Index) -> Tensor:
    """Return some positions along an axis of a mask; an axis of size 1 is broadcast."""
    if x.shape[axis] == 1:
        return x
    return x[(slice(None),) * axis + (index,)]


def blocks(B: int, H: int, T: int, S: int, most: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of sentences and rows with at most `most` scores of all heads, or of one row."""
    rows = min(T, max(1, most // max(1, H * S)))
    sentences = max(1, most // max(1, H * T * S))
    for b in range(0, B, sentences):
        for t in range(0, T, max(1, rows)):
            yield slice(b, min(B, b + sentences)), slice(t, min(T, t + rows))


def log_sum_exp(scores: Scores) -> Tensor:
    """Return log Σ_j exp(scores_tj).  -> (B, H, T).

    It is +inf for a row with nothing to attend to, so that all of its weights are 0, and NaN where a score is.
    """
    B, H, T, S = scores.shape
    lse = torch.empty(B, H, T, dtype=scores.kind, device=scores.q.device)
    scores = scores.wide()
    for batch, rows in blocks(B, H, T, S, scores.most):
        lse[batch, :, rows] = scores.tile(batch, slice(None), rows, slice(None)).logsumexp(-1)
    return lse.masked_fill_(lse == -torch.inf, torch.inf)


def needs_level(scores: Scores, lse: Tensor) -> bool:
    """Whether a mask with numbers moves a row so far from 0 that rounding its log-sum-exp makes weights wrong.

    At -1e9 the next number of fp32 is 64 away: -1e9 + log 7 is -1e9, and seven weights of 1/7 would be 1 each. Then the
    largest score of each row is subtracted (`levelled`).
    """
    if scores.mask is None or not scores.mask.is_floating_point() or scores.level is not None:
        return False
    lost, empty = (lse.abs() > FAR) & (lse != torch.inf), scores.empty()
    if empty is not None:
        lost |= (lse == torch.inf) & ~empty  # kernels take a very low score as masked
    return bool(lost.any())


def levelled(scores: Scores) -> Scores:
    """Return the same scores less the largest of each row, which changes no weight."""
    B, H, T, S = scores.shape
    level = torch.zeros(B, H, T, dtype=scores.kind, device=scores.q.device)
    wide = scores.wide()
    for batch, rows in blocks(B, H, T, S, scores.most) if S else ():
        level[batch, :, rows] = wide.tile(batch, slice(None), rows, slice(None)).amax(-1)
    return replace(scores, level=level.masked_fill_(level == -torch.inf, 0.0))


class Top(NamedTuple):
    """For every query the positions with the largest weights, largest first, of equal ones the first.

    `positions` and `weights` (B, H, T, count), `mass` (B, H, T): how much of the row they cover. Where fewer may be
    attended to, the position is -1 and the weight 0.
    """

    positions: Tensor
    weights: Tensor
    mass: Tensor


class Summary(NamedTuple):
    """The result of one pass over all weights: received (B, H, S), entropy (B, H, T) in nats, and the top or None."""

    received: Tensor
    entropy: Tensor
    top: Top | None


def summary(scores: Scores, lse: Tensor, count: int = 0) -> Summary:
    """Summarise all weights in one pass.  lse (B, H, T); `count` positions with the largest weights, or 0."""
    B, H, T, S = scores.shape
    kind, device = scores.kind, scores.q.device
    received = torch.zeros(B, H, S, dtype=kind, device=device)
    entropy = torch.zeros(B, H, T, dtype=kind, device=device)
    positions = torch.full((B, H, T, count), -1, dtype=torch.int64, device=device)
    logs = torch.full((B, H, T, count), LOW, dtype=kind, device=device)
    scores, most = scores.wide(), min(count, S)
    for batch, rows in blocks(B, H, T, S, scores.most) if S else ():
        z = scores.tile(batch, slice(None), rows, slice(None)).sub_(lse[batch, :, rows, None]).clamp_(min=LOW)
        if count:
            positions[batch, :, rows, :most], logs[batch, :, rows, :most] = _largest(z, most)
        p = z.exp()
        received[batch] += p.sum(2)
        entropy[batch, :, rows] = -p.mul_(z).sum(-1)
    if not count:
        return Summary(received, entropy, None)
    weights = logs.exp()
    return Summary(received, entropy, Top(positions.masked_fill_(logs <= LOW, -1), weights, weights.sum(-1)))


def _largest(z: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return positions and values of the largest elements, of equal ones the first.  z (…, S) -> (…, count) each."""
    if z.dtype == torch.float64:
        values, at = z.sort(dim=-1, descending=True, stable=True)
        return at[..., :count], values[..., :count]
    return unpack(pack(z, torch.arange(z.shape[-1], device=z.device)).topk(count, -1).values)


def pack(z: Tensor, at: Tensor) -> Tensor:
    """Return integers in the order of z, and of descending `at` where z is equal; NaN is the largest."""
    bits = z.contiguous().view(torch.int32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.long() << 32) | (0x7FFFFFFF - at)


def unpack(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Return what was packed: `at` and z."""
    ordered = (packed >> 32).int()
    return 0x7FFFFFFF - (packed & 0x7FFFFFFF), (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).view(torch.float32)


def products_are_rounded() -> bool:
    """Whether CUDA may round factors of fp32 to TF32; True if the setting cannot be read."""
    try:
        if (precision := getattr(torch.backends.cuda.matmul, "fp32_precision", "none")) != "none":
            return bool(precision != "ieee")
        return bool(torch.backends.cuda.matmul.allow_tf32)
    except Exception:  # attention must not fail because of it
        return True


@contextmanager
def exact_products() -> Iterator[None]:
    """Compute products of fp32 matrices in fp32, and restore the setting after; no change while compiling."""
    if torch.compiler.is_compiling() or not products_are_rounded():
        yield
        return
    matmul = torch.backends.cuda.matmul
    name, value = ("fp32_precision", "ieee") if hasattr(matmul, "fp32_precision") else ("allow_tf32", False)
    before = getattr(matmul, name)
    setattr(matmul, name, value)
    try:
        yield
    finally:
        setattr(matmul, name, before)
