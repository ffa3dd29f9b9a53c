"""Weights of scaled dot-product attention from q, k and the log-sum-exp, P = exp(scale·q·k − lse): plain PyTorch.

The definition that the kernels are tested against, and what runs wherever they do not. Nothing larger than a block of
`ELEMENTS` scores (on a GPU `ON_DEVICE`) is ever held.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

ELEMENTS = 1 << 20  # scores that are held at once
ON_DEVICE = 1 << 23  # the same where a block costs a dozen launches
FAR = 2048.0  # a log-sum-exp beyond it is wrong by more than 6e-5 when it is rounded to fp32
LOW = -1e30  # a score this low may not be attended to: finite, so that 0 · LOW is 0 and not NaN
Index = slice | Tensor


@dataclass(frozen=True)
class Scores:
    """What scores are made of.  q (B, H, T, C), k (B, G, S, C), where G divides H: H/G heads share their keys.

    `causal`: position t looks at 0..t, however long the two sides are, as PyTorch has it. `bias` (B or 1, H or 1, S)
    is added to the scores of a position, -inf where it may not be attended to; `mask` (B or 1, H or 1, T or 1, S or 1)
    is what `scaled_dot_product_attention` takes: True for what may be attended to, or numbers that are added, where
    only -inf hides. `level` (B, H, T) is subtracted from all scores of a row once they are whole: see `far`.
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
        """The type that weights are computed in."""
        return torch.float64 if self.q.dtype == torch.float64 else torch.float32

    @property
    def most(self) -> int:
        """How many scores are held at once."""
        return ELEMENTS if self.q.device.type == "cpu" else ON_DEVICE

    def wide(self) -> Scores:
        """Return the same with keys in the type that is computed in, so that many blocks do not convert them again."""
        return replace(self, k=self.k.to(self.kind))

    def tile(self, batch: slice, heads: Index, rows: Index, columns: Index) -> Tensor:
        """Return a block of scores, -inf for what may not be attended to.  -> (b, h, t, s)."""
        everything = heads == slice(None) if isinstance(heads, slice) else False
        q = self.q[batch][:, heads][:, :, rows].to(self.kind)
        k = self.k[batch][:, :, columns].to(self.kind)
        group = self.q.shape[1] // self.k.shape[1]
        with torch.autocast(q.device.type, enabled=False), exact_products():
            if everything and group > 1:
                # The heads that share keys are asked together, so that no key is copied.
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
            # Rows differ only by how far they see.
            bare = replace(bare, q=bare.q[:, :, :1], causal=False)
            seen = (bare.tile(everything, everything, everything, everything) > -torch.inf)[:, :, 0].cumsum(-1) > 0
            last = torch.arange(T, device=self.q.device) if self.causal else torch.full((T,), S, device=self.q.device)
            return ~seen[:, :, last.clamp(max=S - 1)]
        found = torch.empty(B, H, T, dtype=torch.bool, device=self.q.device)
        for batch, rows in blocks(B, H, T, S, self.most):
            found[batch, :, rows] = (bare.tile(batch, everything, rows, everything) == -torch.inf).all(-1)
        return found


def _pick(x: Tensor, axis: int, index: Index) -> Tensor:
    """Return some places along an axis of what masks; an axis of size 1 stands for all."""
    if x.shape[axis] == 1:
        return x
    return x[(slice(None),) * axis + (index,)]


def blocks(B: int, H: int, T: int, S: int, most: int) -> Iterator[tuple[slice, slice]]:
    """Yield sentences and rows of which all heads together have at most so many scores, or one row."""
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


def far(scores: Scores, lse: Tensor) -> bool:
    """Whether numbers that were added carry a row so far from 0 that its log-sum-exp rounds away what weights need.

    At -1e9 the next number of fp32 is 64 away: -1e9 + log 7 is -1e9, and seven weights of 1/7 would be 1 each. Then
    scores are read from the largest of their row (`levelled`).
    """
    if scores.mask is None or not scores.mask.is_floating_point() or scores.level is not None:
        return False
    lost, empty = (lse.abs() > FAR) & (lse != torch.inf), scores.empty()
    if empty is not None:
        lost |= (lse == torch.inf) & ~empty  # to a kernel what is very low may not be attended to
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
    looked at, the position is -1 and the weight 0.
    """

    positions: Tensor
    weights: Tensor
    mass: Tensor


class Summary(NamedTuple):
    """What one pass over all weights tells: received (B, H, S), entropy (B, H, T) in nats, the top if asked for."""

    received: Tensor
    entropy: Tensor
    top: Top | None


def summary(scores: Scores, lse: Tensor, count: int = 0) -> Summary:
    """Go once over all weights.  lse (B, H, T); `count` positions with the largest weights, 0 for none."""
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
    """Return places and values of the largest numbers, of equal ones the first.  z (…, S) -> (…, count) each."""
    if z.dtype == torch.float64:
        values, at = z.sort(dim=-1, descending=True, stable=True)
        return at[..., :count], values[..., :count]
    return unpack(pack(z, torch.arange(z.shape[-1], device=z.device)).topk(count, -1).values)


def pack(z: Tensor, at: Tensor) -> Tensor:
    """Return integers in the order of z and, where that is equal, against that of `at`; NaN is the largest."""
    bits = z.contiguous().view(torch.int32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.long() << 32) | (0x7FFFFFFF - at)


def unpack(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Return what was packed: `at` and z."""
    ordered = (packed >> 32).int()
    return 0x7FFFFFFF - (packed & 0x7FFFFFFF), (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).view(torch.float32)


def products_are_rounded() -> bool:
    """Whether CUDA may round factors of fp32 to TF32; where that cannot be told, it may."""
    try:
        if (said := getattr(torch.backends.cuda.matmul, "fp32_precision", "none")) != "none":
            return bool(said != "ieee")
        return bool(torch.backends.cuda.matmul.allow_tf32)
    except Exception:  # whatever it is, it is no reason for attention to fail
        return True


@contextmanager
def exact_products() -> Iterator[None]:
    """Keep products of fp32 matrices in fp32; afterwards it is as it was. A compiler that looks on changes nothing."""
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
