"""Exact weights of one call of scaled dot-product attention, read when asked for: P = exp(scale·q·k − lse)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from heedful.errors import ConfigError, ShapeError
from heedful.kernels import scaled_pass, scaled_plain
from heedful.kernels.policy import path
from heedful.kernels.scaled_plain import Index, Scores, Summary, Top
from heedful.kernels.scaled_top import MOST

__all__ = ["Places", "ScaledWeights"]

Places = slice | int | Sequence[int] | Tensor
ALL = slice(None)


class ScaledWeights:
    """The weights of one call, (B, H, T, S) in all, of which none is kept: q, k and the log-sum-exp are.

    `backend` is what gave the output: "flash", "efficient", "cudnn", "flash for the CPU", "math" (PyTorch's own
    operations one by one), or "compiled", when a compiler chose. Weights are fp32 (fp64 where q is), from before
    dropout. A row with nothing to look at gives zeros. `how` says what reads them: "auto", "kernel" or "reference".
    """

    def __init__(self, scores: Scores, lse: Tensor | None, backend: str, how: str = "auto") -> None:
        self.scores, self.backend, self.how = scores, backend, how
        self._lse, self._ready = lse, False
        self._versions = None if torch.compiler.is_compiling() else _versions(scores)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes of the weights: (B, H, T, S)."""
        return self.scores.shape

    @property
    def lse(self) -> Tensor:
        """The log-sum-exp of every row, +inf where there is nothing to look at.  (B, H, T)."""
        lse = self._ready_lse()
        return lse if self.scores.level is None else lse + self.scores.level

    def _ready_lse(self) -> Tensor:
        """Return the log-sum-exp of the scores as they are read, less the level of their row."""
        self._check()
        if not self._ready:
            with torch.no_grad():
                self._lse = self._found() if self._lse is None else self._given(self._lse)
                if scaled_plain.far(self.scores, self._lse):
                    self.scores = scaled_plain.levelled(self.scores)
                    self._lse = scaled_plain.log_sum_exp(self.scores)
            self._ready = True
        assert self._lse is not None
        return self._lse

    @property
    def memory(self) -> int:
        """How many bytes are held: all of what q, k, masks and the log-sum-exp are parts of."""
        return sum(self.storages().values())

    def storages(self) -> dict[int, int]:
        """Return the memory that is held, as address and bytes, so that what several calls share is counted once."""
        s = self.scores
        held = (s.q, s.k, s.bias, s.mask, s.level, self._lse)
        found = [x.untyped_storage() for x in held if x is not None]
        return {x.data_ptr(): x.nbytes() for x in found}

    def block(self, rows: Places = ALL, columns: Places = ALL, heads: Places = ALL) -> Tensor:
        """Return the weights of some rows, columns and heads: all of them only if asked for.  -> (B, h, t, s)."""
        B, H, T, S = self.shape
        at = [_places(x, n, name) for x, n, name in ((heads, H, "heads"), (rows, T, "rows"), (columns, S, "columns"))]
        with torch.no_grad():
            lse = self._ready_lse()[:, at[0]][:, :, at[1], None]
            return self.scores.tile(slice(0, B), at[0], at[1], at[2]).sub_(lse).exp_()

    def mean(self, rows: Places = ALL, columns: Places = ALL) -> Tensor:
        """Return the mean over heads of a block, one head at a time.  -> (B, t, s)."""
        H = self.shape[1]
        total = self.block(rows, columns, 0)[:, 0]
        for head in range(1, H):
            total += self.block(rows, columns, head)[:, 0]
        return total / H

    def summary(self, top: int = 0) -> Summary:
        """Return received weight, entropy and, if asked for, the top positions, from one pass over all weights."""
        if top < 0:
            raise ConfigError(f"the top {top} positions were asked for; it takes a number of at least 0")
        with torch.no_grad():
            lse = self._ready_lse()  # before it is asked who reads: it may be found that the kernels cannot
            if self.by_kernels(top):
                return scaled_pass.summary(self.scores, lse, top)
            return scaled_plain.summary(self.scores, lse, top)

    def received(self) -> Tensor:
        """Return for every position the weight that it received from all queries.  -> (B, H, S)."""
        return self.summary().received

    def entropy(self) -> Tensor:
        """Return for every query −Σ p log p, in nats.  -> (B, H, T)."""
        return self.summary().entropy

    def top(self, count: int = 8) -> Top:
        """Return for every query the positions with the largest weights, and the mass they cover."""
        if count < 1:
            raise ConfigError(f"the top {count} positions were asked for; it takes a number of at least 1")
        found = self.summary(count).top
        assert found is not None
        return found

    def by_norms(self, norms: Tensor) -> ScaledWeights:
        """Return the weights by what they let through, α‖v_j‖ as shares of each row.  norms (B, H or G, S).

        α_j n_j / Σ_i α_i n_i is a softmax, too, of scores + log n: so it can be read in all the same ways.
        """
        B, H, _, S = self.shape
        wanted = {(B, heads, S) for heads in (1, self.scores.k.shape[1], H)}
        if tuple(norms.shape) not in wanted:
            raise ShapeError(f"norms have shape {tuple(norms.shape)}, expected (B={B}, H={H}, S={S})")
        if norms.device != self.scores.q.device:
            raise ConfigError(f"norms are on {norms.device}, but q on {self.scores.q.device}")
        self._check()
        bias = norms.detach().to(self.scores.kind).log()
        if bias.shape[1] not in (1, H):
            bias = bias.repeat_interleave(H // bias.shape[1], 1)
        if self.scores.bias is not None:
            bias = bias + self.scores.bias
        return ScaledWeights(replace(self.scores, bias=bias, level=None), None, self.backend, self.how)

    def to(self, device: torch.device | str) -> ScaledWeights:
        """Return the same on another device."""
        lse, s = self._ready_lse(), self.scores
        bias, mask, level = (None if x is None else x.to(device) for x in (s.bias, s.mask, s.level))
        moved = replace(s, q=s.q.to(device), k=s.k.to(device), bias=bias, mask=mask, level=level)
        return ScaledWeights(moved, lse.to(device), self.backend, self.how)

    def by_kernels(self, top: int = 0) -> bool:
        """Whether kernels in Triton read the weights, the top with them; an error if they have to and cannot."""
        unfit = scaled_pass.unfit(self.scores)
        if top > MOST:
            unfit = f"the kernels look for at most {MOST} positions, not {top}"
        return path(self.scores.q.device, self.how, unfit).way == "kernel"

    def _found(self) -> Tensor:
        if self.by_kernels():
            return scaled_pass.log_sum_exp(self.scores)
        return scaled_plain.log_sum_exp(self.scores)

    def _given(self, lse: Tensor) -> Tensor:
        """Return the log-sum-exp that a backend gave; what it says of a row with nothing to look at differs."""
        empty = self.scores.empty()
        lse = lse.to(self.scores.kind).contiguous()
        return lse if empty is None else lse.masked_fill(empty, torch.inf)

    def _check(self) -> None:
        if self._versions is not None and self._versions != _versions(self.scores):
            raise ConfigError(
                "q, k or the mask were written to after the call, so that its weights cannot be read any more; read "
                "them earlier, or let them be copied (watch(…, copy=True))"
            )


def _versions(scores: Scores) -> tuple[int, ...]:
    """Return how often tensors were written to, of those that count it."""
    held = (scores.q, scores.k, scores.bias, scores.mask)
    return tuple(x._version for x in held if x is not None and not x.is_inference())


def _places(given: Places, size: int, name: str) -> Index:
    """Return places along an axis as a slice or as numbers."""
    if isinstance(given, slice):
        if given.step is None or given.step > 0:
            return given
        # PyTorch's slices do not go backwards.
        return torch.tensor(range(*given.indices(size)), dtype=torch.int64)
    at = torch.as_tensor(given).reshape(-1)
    at = at if at.numel() else at.long()  # an empty list would be one of floats
    if at.dtype == torch.bool or at.is_floating_point() or at.is_complex():
        raise ConfigError(f"{name} are given by whole numbers or a slice, not by {at.dtype}")
    if at.numel() and not (-size <= int(at.min()) and int(at.max()) < size):
        raise ShapeError(f"{name} {int(at.min())} to {int(at.max())} were asked for, but there are {size}")
    return at.long() % max(1, size)
