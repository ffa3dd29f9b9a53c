"""Scaled dot-product attention by PyTorch's fastest fused kernel, with exact weights that can be read afterwards.

The output is that of `scaled_dot_product_attention`, bit for bit. Every fused kernel behind it also computes the
log-sum-exp of each row, which PyTorch keeps for the backward pass and does not return. A dispatch mode catches it, and
with it any weight is one product away.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from heedful.errors import ConfigError, ShapeError, check_shapes
from heedful.fused.triton import scaled_kernels, scaled_plain
from heedful.fused.triton.policy import path
from heedful.fused.triton.scaled_plain import Index, Scores, Summary, Top, products_are_rounded

MASKS = 1 << 26  # bytes of a causal mask with padding
TILE = 1 << 25  # weights of a tile on a GPU: 128 MB
KINDS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_aten = torch.ops.aten
# The kernels, with the index of the argument that requests the log-sum-exp, if there is one.
_FUSED = {
    _aten._scaled_dot_product_flash_attention.default: ("flash", None),
    _aten._scaled_dot_product_efficient_attention.default: ("efficient", 4),
    _aten._scaled_dot_product_cudnn_attention.default: ("cudnn", 4),
    _aten._scaled_dot_product_flash_attention_for_cpu.default: ("flash for the CPU", None),
    _aten._scaled_dot_product_fused_attention_overrideable.default: ("fused", None),
}


class Fused(NamedTuple):
    """The name of a fused kernel, and the log-sum-exp that it returned."""

    backend: str
    lse: Tensor


class Caught(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode: `result` is that of the last fused kernel, None if PyTorch ran separate operations."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.result: Fused | None = None

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Run an operation, and keep the log-sum-exp of fused ones."""
        kwargs = kwargs or {}
        if func is _aten.scaled_dot_product_attention.default:
            # In inference mode it is not decomposed yet.
            with self:
                return func.decompose(*args, **kwargs)
        fused = _FUSED.get(func)
        if fused is None:
            return func(*args, **kwargs)
        backend, need_lse = fused
        if need_lse is not None:
            args = (*args[:need_lse], True, *args[need_lse + 1 :])
        outputs = func(*args, **kwargs)
        self.result = Fused(backend, outputs[1])
        return outputs

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: otherwise PyTorch wraps `__torch_dispatch__`, and loads its compiler at the first call."""
        return False

    def of(self, q: Tensor, rows: int | None = None) -> tuple[Tensor | None, str]:
        """Return the log-sum-exp, or None if weights cannot be computed from it, and the backend.  (B, H, T).

        `rows` is the number of queries of the call, if not all of q (B, H, T, C).
        """
        if self.result is None:
            return None, "math"
        backend, lse = self.result
        B, H, T = *q.shape[:2], q.shape[2] if rows is None else rows
        if backend == "efficient":
            lse = lse[..., :T]  # it is padded to a multiple of 32
        rounded = q.is_cuda and q.dtype == torch.float32 and products_are_rounded()
        # "fused" is a backend of another package: its log-sum-exp may be defined otherwise.
        if lse.numel() != B * H * T or rounded or backend == "fused":
            return None, backend
        return lse.detach().reshape(B, H, T), backend


def scaled_attend(
    q: Tensor,
    k: Tensor,
    values: Tensor,
    *,
    keep: Tensor | None = None,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    how: str = "auto",
) -> tuple[Tensor, ScaledWeights]:
    """Return softmax(scale·q·k)·values, with its weights.  q (B, H, T, C), k, values (B, G, S, C) -> (B, H, T, C).

    G divides H: H/G heads share keys and values. `keep` (B, S) is True for positions to attend to; with `causal`,
    query t attends to positions 0..t (top left, as in PyTorch, also where T ≠ S); `mask` is a mask as in
    `scaled_dot_product_attention`, instead of both. `scale` is 1/√C by default. `how` is what computes the weights
    later: "auto" kernels where they are usable, "reference" PyTorch, "kernel" the kernels or an error.
    A row with nothing to attend to gives zeros.
    """
    if keep is not None or mask is not None or not _alike(q, k, values):
        _check(q, k, values, keep, mask, causal)
    # First, so that the GPU works while Python goes on.
    output, calls = _call_attention(q, k, values, mask if keep is None else keep[:, None, None, :], causal, scale)
    scores = scaled_scores(q, k, scale=scale, causal=causal, mask=mask, keep=keep)
    lse, backend = _join_lse(calls, scores.q)
    if keep is not None or mask is not None or not k.shape[2]:
        empty = scores.empty()
        output = output if empty is None else output.masked_fill(empty[..., None], 0.0)
    weights = ScaledWeights(scores, lse, backend, how)
    if how != "auto":
        weights.by_kernels()  # so that an impossible `how` is an error here, not when weights are read
    return output, weights


def _call_attention(
    q: Tensor, k: Tensor, values: Tensor, mask: Tensor | None, causal: bool, scale: float | None
) -> tuple[Tensor, list[tuple[Caught, int]]]:
    """Return the output, and for each call of PyTorch's attention (mostly one) what was caught and its queries."""
    outputs: list[Tensor] = []
    calls: list[tuple[Caught, int]] = []
    for some in _slabs(q, k, values, mask, causal):
        if torch.compiler.is_compiling():
            # No dispatch mode while compiling; the log-sum-exp is computed when weights are read.
            outputs.append(_sdpa(*some, scale))
            continue
        with Caught() as caught:
            outputs.append(_sdpa(*some, scale))
        calls.append((caught, some[0].shape[2]))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, 2), calls


def _join_lse(calls: list[tuple[Caught, int]], q: Tensor) -> tuple[Tensor | None, str]:
    """Return the log-sum-exp of all calls, unless one has none, and the backend.  q (B, H, T, C) -> (B, H, T)."""
    results = [caught.of(q, rows) for caught, rows in calls]
    backend = results[-1][1] if results else "compiled"
    sums = [lse for lse, _ in results if lse is not None]
    if len(sums) < max(1, len(results)):
        return None, backend
    return sums[0] if len(sums) == 1 else torch.cat(sums, 2), backend


def scaled_scores(
    q: Tensor,
    k: Tensor,
    *,
    scale: float | None = None,
    causal: bool = False,
    mask: Tensor | None = None,
    keep: Tensor | None = None,
) -> Scores:
    """Return the scores of a call, in the type of autocast.  keep (B, S), mask (…, T, S)."""
    kind, mask_kind = _autocast(q), None if mask is None else _autocast(mask)
    bias = None if keep is None else torch.zeros(keep.shape, device=keep.device).masked_fill_(~keep, -torch.inf)
    return Scores(
        _as_kind(q, kind),
        _as_kind(k, kind),
        1 / math.sqrt(q.shape[-1]) if scale is None else float(scale),
        bool(causal),
        None if bias is None else bias[:, None],
        None if mask is None else mask.detach().to(mask_kind)[(None,) * (4 - mask.dim())],
    )


def _as_kind(x: Tensor, kind: torch.dtype) -> Tensor:
    """Return a tensor of another type, without gradient; itself where it is that already."""
    return x if x.dtype == kind and not x.requires_grad else x.detach().to(kind)


def _autocast(x: Tensor) -> torch.dtype:
    """Return the type in which attention takes a tensor: autocast's for floating-point ones."""
    if not torch._C._is_any_autocast_enabled() or not x.is_floating_point() or x.dtype == torch.float64:
        return x.dtype
    device = x.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return x.dtype


def _slabs(
    q: Tensor, k: Tensor, values: Tensor, mask: Tensor | None, causal: bool
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor | None, bool]]:
    """Yield q, k, values, mask and whether it is causal for each call of PyTorch's attention; mostly one."""
    B, T, S = q.shape[0], q.shape[2], k.shape[2]
    if mask is None or not causal:
        yield q, k, values, mask, causal
        return
    # PyTorch takes either a mask or is_causal. A mask with both is T × S, so it is made for some queries at a time, and
    # only for the keys that they attend to.
    rows = max(1, MASKS // max(1, B * S))
    for begin in range(0, T, rows):
        end = min(T, begin + rows)
        last = min(S, end)
        past = torch.arange(last, device=q.device) <= torch.arange(begin, end, device=q.device)[:, None]
        yield q[:, :, begin:end], k[:, :, :last], values[:, :, :last], mask[..., :last] & past, False


def _sdpa(q: Tensor, k: Tensor, values: Tensor, mask: Tensor | None, causal: bool, scale: float | None) -> Tensor:
    group = q.shape[1] // k.shape[1]
    if group > 1 and mask is not None and q.is_cuda:
        # No fused kernel supports both a mask and shared keys.
        k, values = k.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
        group = 1
    return F.scaled_dot_product_attention(q, k, values, mask, 0.0, causal, scale=scale, enable_gqa=group > 1)


def _alike(q: Tensor, k: Tensor, values: Tensor) -> bool:
    """Whether all shapes and types match, as in most calls: `_check` would take longer than the call."""
    if not (q.dim() == k.dim() == values.dim() == 4 and q.dtype == k.dtype == values.dtype and q.dtype in KINDS):
        return False
    B, H, _, C = q.shape
    sizes = k.shape[:2] == (B, H) and k.shape[3] == C and values.shape[:3] == k.shape[:3] and H > 0
    return sizes and q.device == k.device == values.device


def _check(q: Tensor, k: Tensor, values: Tensor, keep: Tensor | None, mask: Tensor | None, causal: bool) -> None:
    """Raise ShapeError or ConfigError for arguments that do not match."""
    for name, x in (("q", q), ("k", k), ("values", values)):
        if x.dim() != 4:
            raise ShapeError(f"{name} has shape {tuple(x.shape)}, expected (B, heads, positions, channels): 4 axes")
    sizes = check_shapes(q=(q, "B H T C"), k=(k, "B G S C"), values=(values, "B G S D"))
    B, H, T, S, G = (sizes[letter] for letter in "BHTSG")
    if not G or H % G:
        raise ShapeError(f"q has {H} heads and k has {G}: the heads of q must be a multiple of those of k")
    for name, other in (("k", k), ("values", values), ("keep", keep), ("mask", mask)):
        if other is not None and other.device != q.device:
            raise ConfigError(f"{name} is on {other.device}, but q on {q.device}; move them to one device")
    for name, x in (("q", q), ("k", k), ("values", values)):
        if x.dtype not in KINDS:
            raise ConfigError(f"{name} is {x.dtype}; attention takes fp32, fp16, bf16 and fp64")
        if x.dtype != q.dtype and _autocast(q) == q.dtype:
            raise ConfigError(f"{name} is {x.dtype}, but q is {q.dtype}; give them one type, or use autocast")
    if mask is not None and (keep is not None or causal):
        raise ConfigError("mask cannot be combined with keep or causal; merge them into one mask")
    if keep is not None and (tuple(keep.shape) != (B, S) or keep.dtype != torch.bool):
        raise ShapeError(f"keep is {tuple(keep.shape)} of {keep.dtype}, expected (B={B}, S={S}) of torch.bool")
    if mask is not None:
        wanted = (B, H, T, S)
        fits = 2 <= mask.dim() <= 4 and all(n in (1, m) for n, m in zip(mask.shape[::-1], wanted[::-1], strict=False))
        if not fits or not (mask.dtype == torch.bool or mask.is_floating_point()):
            raise ShapeError(
                f"mask is {tuple(mask.shape)} of {mask.dtype}, expected bool, or numbers to add, that fit "
                f"(B, H, T, S) = {wanted}, or its last 2 or 3 axes"
            )


Positions = slice | int | Sequence[int] | Tensor
ALL = slice(None)


class ScaledWeights:
    """The weights of one call, (B, H, T, S), computed when they are read from q, k and the log-sum-exp.

    `backend` is what computed the output: "flash", "efficient", "cudnn", "flash for the CPU", "math" (PyTorch's own
    separate operations), or "compiled" (chosen by a compiler). Weights are fp32 (fp64 where q is), from before
    dropout. A row with nothing to attend to gives zeros. `how` is what computes them: "auto", "kernel" or "reference".
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
        """The log-sum-exp of every row, +inf where there is nothing to attend to.  (B, H, T)."""
        lse = self._ready_lse()
        return lse if self.scores.level is None else lse + self.scores.level

    def _ready_lse(self) -> Tensor:
        """Return the log-sum-exp of the scores, less the level of their row."""
        self._check()
        if not self._ready:
            with torch.no_grad():
                self._lse = self._computed() if self._lse is None else self._with_empty_rows(self._lse)
                if scaled_plain.needs_level(self.scores, self._lse):
                    self.scores = scaled_plain.levelled(self.scores)
                    self._lse = scaled_plain.log_sum_exp(self.scores)
            self._ready = True
        assert self._lse is not None
        return self._lse

    @property
    def memory(self) -> int:
        """How many bytes are held: the whole storages of q, k, masks and the log-sum-exp."""
        return sum(self.storages().values())

    def storages(self) -> dict[int, int]:
        """Return the storages that are held, bytes by address, so that those shared by several calls count once."""
        s = self.scores
        held = (s.q, s.k, s.bias, s.mask, s.level, self._lse)
        storages = [x.untyped_storage() for x in held if x is not None]
        return {x.data_ptr(): x.nbytes() for x in storages}

    def block(self, rows: Positions = ALL, columns: Positions = ALL, heads: Positions = ALL) -> Tensor:
        """Return the weights of some rows, columns and heads: by default all of them.  -> (B, h, t, s)."""
        B, H, T, S = self.shape
        at = [_index(x, n, name) for x, n, name in ((heads, H, "heads"), (rows, T, "rows"), (columns, S, "columns"))]
        with torch.no_grad():
            lse = self._ready_lse()[:, at[0]][:, :, at[1], None]
            return self.scores.tile(slice(0, B), at[0], at[1], at[2]).sub_(lse).exp_()

    def tiles(self, sentence: int = 0, heads: Positions = ALL) -> Iterator[tuple[slice, Tensor]]:
        """Yield all weights of one sentence of the batch, some rows at a time: the rows, and (h, t, s) with s <= S.

        Columns that a causal mask rules out for all of the rows are left out. Memory does not grow with T.
        """
        _, H, T, S = self.shape
        lse = self._ready_lse()[sentence, :, :, None]
        at, only = _index(heads, H, "heads"), slice(sentence, sentence + 1)
        with torch.no_grad():
            scores, lse = self.scores.select(only).wide(), lse[at]
        most = scores.most if scores.q.device.type == "cpu" else TILE
        for _, rows in scaled_plain.blocks(1, len(lse), T, S, most):
            columns = slice(0, min(S, rows.stop)) if scores.causal else slice(0, S)
            with torch.no_grad():
                tile = scores.tile(slice(0, 1), at, rows, columns)[0].sub_(lse[:, rows]).exp_()
            yield rows, tile

    def mean(self, rows: Positions = ALL, columns: Positions = ALL) -> Tensor:
        """Return the mean over heads of a block, one head at a time.  -> (B, t, s)."""
        H = self.shape[1]
        total = self.block(rows, columns, 0)[:, 0]
        for head in range(1, H):
            total += self.block(rows, columns, head)[:, 0]
        return total / H

    def summary(self, top: int = 0) -> Summary:
        """Return received weight, entropy and, with `top`, the top positions, computed in one pass."""
        if top < 0:
            raise ConfigError(f"top is {top}, expected a whole number of at least 0")
        with torch.no_grad():
            lse = self._ready_lse()  # first, because it may rule out the kernels
            if self.by_kernels(top):
                return scaled_kernels.summary(self.scores, lse, top)
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
            raise ConfigError(f"count is {count}, expected a whole number of at least 1")
        top = self.summary(count).top
        assert top is not None
        return top

    def by_norms(self, norms: Tensor) -> ScaledWeights:
        """Return the weights times the norms of the values, normalised in each row.  norms (B, H or G, S).

        α_j n_j / Σ_i α_i n_i is the softmax of scores + log n, so all methods apply to it.
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
        """Whether Triton kernels compute the weights, and `top` positions; raise ConfigError if `how` requires it."""
        unfit = scaled_kernels.unfit(self.scores)
        if top > scaled_kernels.MOST_TOP:
            unfit = f"the kernels find at most {scaled_kernels.MOST_TOP} top positions, not {top}"
        return path(self.scores.q.device, self.how, unfit).way == "kernel"

    def _computed(self) -> Tensor:
        if self.by_kernels():
            return scaled_kernels.log_sum_exp(self.scores)
        return scaled_plain.log_sum_exp(self.scores)

    def _with_empty_rows(self, lse: Tensor) -> Tensor:
        """Return the log-sum-exp of a backend with +inf for rows with nothing to attend to, where backends differ."""
        empty = self.scores.empty()
        lse = lse.to(self.scores.kind).contiguous()
        return lse if empty is None else lse.masked_fill(empty, torch.inf)

    @property
    def unchanged(self) -> bool:
        """Whether q, k and the masks are as they were in the call."""
        return self._versions is None or self._versions == _versions(self.scores)

    def has_first_keys(self, k: Tensor) -> bool:
        """Whether the keys are equal to the first of some others.  k (B, G, more than S, C)."""
        own = self.scores.k
        first = k[:, :, : own.shape[2]]
        return self.unchanged and own.dtype == k.dtype and own.device == k.device and torch.equal(own, first)

    def with_first_keys(self, k: Tensor) -> ScaledWeights:
        """Return the same with the first of some other keys, which are equal to its own, so that those can be freed."""
        scores = replace(self.scores, k=k[:, :, : self.shape[3]])
        same = ScaledWeights(scores, self._lse, self.backend, self.how)
        same._ready = self._ready
        return same

    def _check(self) -> None:
        if not self.unchanged:
            raise ConfigError(
                "q, k or the mask were written to after the call, so that its weights cannot be read; read them "
                "earlier, or copy the tensors (watch(…, copy=True))"
            )


def _versions(scores: Scores) -> tuple[int, ...]:
    """Return the version counters of the tensors that have one."""
    held = (scores.q, scores.k, scores.bias, scores.mask)
    return tuple([x._version for x in held if x is not None and not x.is_inference()])


def _index(positions: Positions, size: int, name: str) -> Index:
    """Return positions along an axis as a slice or as a tensor."""
    if isinstance(positions, slice):
        if positions.step is None or positions.step > 0:
            return positions
        # PyTorch has no slices with a negative step.
        return torch.tensor(range(*positions.indices(size)), dtype=torch.int64)
    at = torch.as_tensor(positions).reshape(-1)
    at = at if at.numel() else at.long()  # an empty list would be one of floats
    if at.dtype == torch.bool or at.is_floating_point() or at.is_complex():
        raise ConfigError(f"{name} is of {at.dtype}, expected whole numbers or a slice")
    if at.numel() and not (-size <= int(at.min()) and int(at.max()) < size):
        raise ShapeError(f"{name} {int(at.min())} to {int(at.max())} are out of range; there are {size}")
    return at.long() % max(1, size)
