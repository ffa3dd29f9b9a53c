"""The Transformer: attention between the two sentences, and inside each of them, in place of recurrence.

With `model.cell=ssru` the decoder's self-attention is replaced by `Ssru`, a recurrent cell without a matrix on its
state: decoding a token takes the same time and memory at any position.

`EncoderLayer` and `DecoderLayer` are the definition. Without gradients, `heedful.fused.cpu` computes the same with
fewer operations: `fast_encode` a source, `FastDecoder` a token, `fast_reread` a whole target.

The output g of a sub-layer is added to x only where x is read next, and normalised there. So in training on a GPU the
sum, its dropout and LN are one kernel (`heedful.fused.triton.sublayers`), in bf16 and fp16 only: in fp32 a Transformer
trained slower with the kernels than without.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from heedful.attention import attend, causal, mask_bias, scaled
from heedful.config import ImageConfig, TransformerConfig
from heedful.errors import ConfigError, ShapeError
from heedful.fused.cpu.linear import Packable
from heedful.fused.cpu.transformer import (
    FastDecoder,
    FastLayers,
    FastSsruDecoder,
    PackedOutput,
    PackedRows,
    cross_keys,
    fast_encode,
    fast_reread,
)
from heedful.fused.ssru import ssru_states
from heedful.fused.triton.linear import linear
from heedful.fused.triton.policy import usable
from heedful.fused.triton.sublayers import DropoutMasks, relu_dropout, residual_norm
from heedful.models.image import Regions
from heedful.models.layers import dropout, embedding
from heedful.models.protocol import Memory, NeedWeights, Reread, Step
from heedful.models.shortlist import Allowed, Shortlist
from heedful.models.slots import SsruSlots, TransformerSlots

ROWS = 2  # factor by which the rows grow when sentences join
JOIN = "only sentences that begin can join others, and only where tokens are decoded one at a time"
FIRST = 32  # tokens there is room for at first; it is doubled when it is full


class Positions:
    """The positions of the tokens that a state is at: `length` so far in each of L layers, at most `capacity`.

    Sentences may join that begin later: the last tokens of all are at the same index, and `offset` (R,) is the number
    of positions before the first token of each. Only one token at a time can be decoded then.
    """

    def __init__(self, L: int, capacity: int, positions: Callable[[int], Tensor]) -> None:
        self.L, self.capacity, self.positions = L, capacity, positions
        self.table: Tensor | None = None  # of the first positions
        self.length = 0
        self.offset: Tensor | None = None
        self.new_rows = 0  # sentences in the memory that it was started for

    def next_positions(self, n: int) -> Tensor:
        """Return the encodings of the next n positions, (n, D); (R, 1, D) if sentences began at different times."""
        if self.length + n > self.capacity:
            raise ShapeError(f"{self.length + n} tokens, but the state was started for {self.capacity} at most")
        wanted = self.length + n
        if self.table is None or len(self.table) < wanted:
            self.table = self.positions(wanted)
        if self.offset is not None:
            return self.table[self.length - self.offset][:, None]
        return self.table[self.length : wanted]

    def advance(self, n: int) -> None:
        """Count n tokens more, once all layers have them."""
        self.length += n


class Cache(Positions):
    """The state of a decoder with self-attention: the keys and values of all tokens so far.

    They are in one `buffer` (L, 2, R, H, size, C): new tokens are written to it, and all tokens so far are a view of
    it; what follows them is 0. With gradients enabled nothing may be overwritten, and tokens are concatenated instead
    (`recorded`).
    """

    def __init__(self, L: int, capacity: int, positions: Callable[[int], Tensor]) -> None:
        super().__init__(L, capacity, positions)
        self.buffer: Tensor | None = None
        self.spare: Tensor | None = None  # to which selected rows are copied; then the two are swapped
        self.rows: Tensor | None = None  # of which the buffer is the first rows, so that others can join
        self.recorded: dict[int, Tensor] = {}
        self.fast: FastDecoder | None = None

    @property
    def with_grad(self) -> bool:
        """Whether tokens were decoded with gradients enabled."""
        return bool(self.recorded)

    def extend(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values of n tokens in a layer; return those of all.  (R, H, n, C) -> (R, H, t, C) each."""
        n, t = k.shape[2], self.length
        if n == self.capacity:  # all tokens in one step
            return k, v
        kv = torch.stack([k, v])
        if torch.is_grad_enabled() or self.recorded:
            before = self.recorded.get(layer)
            if before is None and self.buffer is not None:
                before = self.buffer[layer, :, :, :, :t]
            kv = kv if before is None else torch.cat([before, kv], dim=3)
            self.recorded[layer] = kv
            k, v = kv.unbind(0)
        else:
            buffer = self.make_room(kv, kv.shape[1], kv.shape[2], kv.shape[4], n)[layer]
            buffer[:, :, :, t : t + n] = kv
            k, v = buffer[:, :, :, : t + n].unbind(0)
        return k, v

    def select(self, rows: Tensor) -> Cache:
        """Keep some hypotheses, in the order of `rows`."""
        self.recorded = {layer: kv[:, rows] for layer, kv in self.recorded.items()}
        self.offset = None if self.offset is None else self.offset[rows]
        if self.buffer is not None and self.length:
            R, size = len(rows), self.buffer.shape[4]
            if self.spare is None or self.spare.shape[2] < R or self.spare.shape[4] != size:
                self.spare = self._empty(R, size)
            selected = self.spare if self.spare.shape[2] == R else self.spare[:, :, :R]
            before = self.buffer if self.rows is None else self.rows
            torch.index_select(self.buffer[..., : self.length, :], 2, rows, out=selected[..., : self.length, :])
            self.buffer, self.rows, self.spare = selected, self.spare, before
        return self

    def join(self, other: Cache) -> Cache:
        """Append sentences that begin now."""
        starts = self._starts(other)
        if self.buffer is None or starts is None:
            self.buffer, self.new_rows = None, self.new_rows + other.new_rows
            return self
        R, more, size = self.buffer.shape[2], self.buffer.shape[2] + other.new_rows, self.buffer.shape[4]
        if self.rows is None or self.rows.shape[2] < more:
            self.rows, self.spare = self._empty(max(more, ROWS * R), size), None
            self.rows[:, :, :R, :, : self.length] = self.buffer[..., : self.length, :]
        self.buffer = self.rows[:, :, :more]
        # Positions before a sentence are masked, but must not be NaN.
        self.buffer[:, :, R:, :, : self.length] = 0
        self.offset = torch.cat([starts, starts.new_full((other.new_rows,), self.length)])
        return self

    def put(self, rows: Tensor, other: Cache) -> Cache:
        """Replace some sentences by others that begin now; positions before are masked."""
        starts = self._starts(other)
        self.offset = None if starts is None else starts.index_fill(0, rows, self.length)
        return self

    def _starts(self, other: Cache) -> Tensor | None:
        """Check that others can begin now; return where each of these began, None if all begin now."""
        if self.with_grad or other.length or other.with_grad:
            raise ShapeError(JOIN)
        self.capacity = max(self.capacity, self.length + other.capacity)
        if self.buffer is None or not self.length:
            return None
        return self.buffer.new_zeros(self.buffer.shape[2], dtype=torch.long) if self.offset is None else self.offset

    def make_room(self, like: Tensor, R: int, H: int, C: int, n: int = 1) -> Tensor:
        """Return the buffer (L, 2, R, H, size, C) with the tokens so far, and room for n more."""
        if self.buffer is not None and self.buffer.shape[4] >= self.length + n:
            return self.buffer
        # Positions before the first token of all sentences are dropped.
        gone = 0 if self.offset is None else int(self.offset.min())
        old, kept = self.buffer, self.length - gone
        self.length, self.capacity = kept, self.capacity - gone
        size = min(max(FIRST, kept + n, 2 * kept), self.capacity)
        self.buffer, self.rows = like.new_zeros(self.L, 2, R, H, size, C), None
        if self.offset is not None:
            self.offset = self.offset - gone
        if old is not None:
            self.buffer[..., :kept, :] = old[..., gone : gone + kept, :]
        return self.buffer

    def _empty(self, R: int, size: int) -> Tensor:
        assert self.buffer is not None
        L, two, _, H, _, C = self.buffer.shape
        return self.buffer.new_zeros(L, two, R, H, size, C)


class SsruState(Positions):
    """The state of a decoder with SSRUs: c_t of each layer, `cells` (L, R, D); None before the first token, for 0."""

    def __init__(self, L: int, capacity: int, positions: Callable[[int], Tensor]) -> None:
        super().__init__(L, capacity, positions)
        self.cells: Tensor | None = None
        self.after: list[Tensor] = []  # of the layers that have read the tokens of a step, until all have
        self.fast: FastSsruDecoder | None = None

    @property
    def with_grad(self) -> bool:
        """Whether tokens were decoded with gradients enabled."""
        return self.cells is not None and self.cells.requires_grad

    def cell(self, layer: int, like: Tensor) -> Tensor:
        """Return c_{t-1} of a layer, with the type and the rows of `like` (R, n, D).  (R, D)."""
        return like.new_zeros(like.shape[0], like.shape[2]) if self.cells is None else self.cells[layer]

    def make_room(self, like: Tensor) -> Tensor:
        """Return the states, to be overwritten; 0 before the first token.  like (R, D) -> (L, R, D)."""
        if self.cells is None:
            self.cells = like.new_zeros(self.L, *like.shape)
        return self.cells

    def advance(self, n: int) -> None:
        """Count n tokens more, once all layers have read them."""
        super().advance(n)
        if self.after:
            self.cells, self.after = torch.stack(self.after), []

    def select(self, rows: Tensor) -> SsruState:
        """Keep some hypotheses, in the order of `rows`."""
        self.offset = None if self.offset is None else self.offset[rows]
        self.cells = None if self.cells is None else self.cells.index_select(1, rows)
        return self

    def join(self, other: SsruState) -> SsruState:
        """Append sentences that begin now."""
        starts = self._starts(other)
        if self.cells is None or starts is None:
            self.cells, self.new_rows = None, self.new_rows + other.new_rows
            return self
        self.cells = torch.cat([self.cells, self.cells.new_zeros(self.L, other.new_rows, self.cells.shape[2])], dim=1)
        self.offset = torch.cat([starts, starts.new_full((other.new_rows,), self.length)])
        return self

    def put(self, rows: Tensor, other: SsruState) -> SsruState:
        """Replace some sentences by others that begin now."""
        starts = self._starts(other)
        if self.cells is None or starts is None:
            self.cells = None
        else:
            self.cells, self.offset = self.cells.index_fill(1, rows, 0.0), starts.index_fill(0, rows, self.length)
        return self

    def _starts(self, other: SsruState) -> Tensor | None:
        """Check that others can begin now; return where each of these began, None if all begin now."""
        if self.with_grad or other.length:
            raise ShapeError(JOIN)
        if self.cells is None or not self.length:
            self.capacity = max(self.capacity, self.length + other.capacity)
            return None
        starts = self.offset
        if starts is None:
            starts = torch.zeros(self.cells.shape[1], dtype=torch.long, device=self.cells.device)
        elif gone := int(starts.min()):  # positions before the first token of all sentences are dropped
            starts, self.length, self.capacity = starts - gone, self.length - gone, self.capacity - gone
        self.capacity = max(self.capacity, self.length + other.capacity)
        return starts


POSITIONS = 256  # encodings that are computed at first
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}
HALVES = (torch.bfloat16, torch.float16)
# All but cuDNN's: with torch 2.11 its gradients in bf16 were NaN for some shapes, 64 by 80 tokens say.
SAFE = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def positions(n: int, D: int, like: Tensor | None = None, kind: str = "sinusoid") -> Tensor:
    """Return p_t = [sin(t ω_1), …, sin(t ω_{D/2}), cos(t ω_1), …], ω_i = 10000^(-2(i-1)/D), for t = 0..n-1.  (n, D).

    With the kind "marian" ω_i = 10000^(-2(i-1)/(D-2)), so that the last is 1/10000.
    """
    t = torch.arange(n, dtype=torch.float64)[:, None]
    whole = D if kind == "sinusoid" else max(1, D - 2)
    angles = t * 10000.0 ** (-torch.arange(0, D, 2, dtype=torch.float64) / whole)
    table = torch.cat([angles.sin(), angles.cos()], dim=-1)
    return table.float() if like is None else table.to(like)


class Stream(NamedTuple):
    """x + dropout(g), not added up yet; g is None when there is nothing to add. With `drops`, kernels do the work."""

    x: Tensor
    g: Tensor | None = None
    drops: DropoutMasks | None = None

    @classmethod
    def of(cls, x: Tensor, training: bool) -> Stream:
        """Begin with the tokens' embeddings.  x (B, n, D)."""
        fused = training and torch.is_grad_enabled() and _by_kernels(x)
        return cls(x, None, DropoutMasks(x.device) if fused else None)


def _by_kernels(x: Tensor) -> bool:
    """Whether kernels run the sub-layers: where kernels are usable, and products are in a half type."""
    return usable(x) and _precision(x) in HALVES


def _precision(x: Tensor) -> torch.dtype:
    """Return the type in which products of x are computed: autocast's, or its own."""
    place = x.device.type
    cast = torch.amp.is_autocast_available(place) and torch.is_autocast_enabled(place)
    return torch.get_autocast_dtype(place) if cast else x.dtype


def add_and_norm(stream: Stream, LN: nn.Module, p: float) -> tuple[Tensor, Tensor]:
    """Return x' = x + dropout(g) and LN(x').  (B, n, D) each."""
    x, g, drops = stream
    if drops is not None and isinstance(LN, nn.LayerNorm):
        # Under autocast only products read the normalised values, and would round them anyway.
        return residual_norm(x, g, LN, p, drops, _precision(x))
    if g is not None:
        x = x + (dropout(g, p) if p else g)
    return x, LN(x)


class Residual(nn.Module):
    """The residual connection around a sub-layer g: x + g(LN(x)) with `norm=pre`, LN(x + g(x)) with `norm=post`."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.pre, self.dropout = config.norm == "pre", config.dropout
        self.LN = nn.LayerNorm(config.width)

    def before(self, stream: Stream) -> tuple[Stream, Tensor]:
        """Return the stream, and the input of the sub-layer.  (B, n, D)."""
        if not self.pre:
            return stream, stream.x
        x, n = add_and_norm(stream, self.LN, self.dropout if self.training else 0.0)
        return stream._replace(x=x, g=None), n

    def after(self, stream: Stream, g: Tensor) -> Stream:
        """Return the stream after the sub-layer.  g (B, n, D)."""
        stream = stream._replace(g=g)
        if self.pre:
            return stream
        x, g = add_and_norm(stream, self.LN, self.dropout if self.training else 0.0)
        return stream._replace(x=g.to(x.dtype), g=None)


@dataclass(frozen=True)
class Mask:
    """A mask, prepared once for all layers.

    `keep` (B, S) or (1, T, S) as `attend` takes it, None for everything. For PyTorch's own attention the same as a
    `bias` (B or 1, 1, 1 or T, S) on the scores, and in `some` (B, 1, 1, 1) 0 for a row with nothing to attend to;
    or `is_causal`: each position attends to itself and those before it.
    """

    keep: Tensor | None = None
    bias: Tensor | None = None
    some: Tensor | None = None
    is_causal: bool = False

    @classmethod
    def of(cls, keep: Tensor, like: Tensor) -> Mask:
        """Attend to some positions of each sentence.  keep (B, S); the products will have the type of `like`."""
        dtype = _precision(like)
        return cls(keep, _bias(keep[:, None], dtype), keep.any(1)[:, None, None, None].to(dtype))

    @classmethod
    def causal(cls, n: int, t: int, like: Tensor, need_weights: bool) -> Mask:
        """Attend from the last n of t tokens, each to itself and those before it."""
        if n == 1:
            return cls()
        if n == t and not need_weights:
            return cls(is_causal=True)
        keep = causal(n, t, like.device)
        return cls(keep, is_causal=True) if n == t else cls(keep, _bias(keep, _precision(like)))


def _bias(keep: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the mask as a bias; in rows of a multiple of 8 numbers, as the kernels want them.  (B, T, S)."""
    S = keep.shape[-1]
    return mask_bias(F.pad(keep, (0, -S % 8)), dtype)[:, None, :, :S]


def product(x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
    """Return x Wᵀ + b; without gradients, on a GPU, no row depends on the rest of the batch.  x (…, in) -> (…, out)."""
    return F.linear(x, W, b) if torch.is_grad_enabled() else linear(x, W, b)


class Product(nn.Linear):
    """`nn.Linear` by `product`."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x Wᵀ + b.  x (…, in) -> (…, out)."""
        return product(x, self.weight, self.bias)


class MultiHead(nn.Module):
    """[c¹; …; c^H] W_o with cⁱ = Σ_j αⁱ_tj vⁱ_j, αⁱ = softmax(qⁱ · kⁱ / √C), q = W_q s, k = W_k h, v = W_v h.

    The three matrices are one, W = [W_q; W_k; W_v], so that self-attention takes one product.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.C, self.dropout = config.channels, config.attention_dropout
        self.W = Product(config.width, 3 * config.width)
        self.W_o = Product(config.width, config.width)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """Cut into heads.  x (B, n, parts·H·C), parts of D side by side -> (B, H, n, C) for each."""
        B, n, _ = x.shape
        return tuple(part.view(B, n, -1, self.C).transpose(1, 2) for part in torch.split(x, self.W.in_features, -1))

    def project(self, s: Tensor) -> tuple[Tensor, ...]:
        """Return q, k and v of the same states.  s (B, n, D) -> 3 (B, H, n, C)."""
        return self.split(self.W(s))

    def query(self, s: Tensor) -> Tensor:
        """Return q.  s (B, n, D) -> (B, H, n, C)."""
        D = self.W.in_features
        return self.split(product(s, self.W.weight[:D], self.W.bias[:D]))[0]

    def keys(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return k and v, once for a sentence.  h (B, S, D) -> (B, H, S, C) each."""
        D = self.W.in_features
        k, v = self.split(product(h, self.W.weight[D:], self.W.bias[D:]))
        return (k, v) if torch.is_grad_enabled() else (k.contiguous(), v.contiguous())

    def norms(self, v: Tensor) -> Tensor:
        """Return ‖W_o^i vⁱ_j‖, the length of each head's output for each position.  v (B, H, S, C) -> (B, H, S).

        As √(vᵀ W_oᵀ W_o v): the vectors themselves would be C times as many numbers.
        """
        W = self.W_o.weight.view(self.W_o.out_features, -1, self.C).transpose(0, 1).to(v.dtype)  # (H, D, C)
        return ((v @ (W.transpose(1, 2) @ W)) * v).sum(-1).clamp_min(0).sqrt()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        """Attend with every head.  q (B, H, T, C), k, v (B, H, S, C) -> (B, T, D), weights (B, H, T, S)."""
        c, weights = attend(scaled(q, k), v, keep, self.dropout if self.training else 0.0)
        return self.W_o(c.transpose(1, 2).flatten(2)), weights

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        """The same, with weights only if needed.  q (B, H, T, C), k, v (B, H, S, C) -> (B, T, D)."""
        if need_weights:
            c, weights = self(q, k, v, mask.keep)
            return c, weights
        dropout = self.dropout if self.training else 0.0
        with sdpa_kernel(SAFE) if q.is_cuda else nullcontext():
            c = F.scaled_dot_product_attention(q, k, v, mask.bias, dropout, is_causal=mask.is_causal)
        c = c.transpose(1, 2).flatten(2)
        return self.W_o(c if mask.some is None else c * mask.some[:, 0]), None


class Ssru(nn.Module):
    """A recurrent cell: relu(c_t) with c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ W x_t, f_t = σ(W_f x_t + b_f).

    From Kim et al. 2019, "From Research to Production and Back". The two matrices are one, W = [W_f; W], so that a step
    takes one product. c_t is in fp32 at least: it is a sum over all tokens so far.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.W = Product(config.width, 2 * config.width, bias=False)
        self.b_f = nn.Parameter(torch.zeros(config.width))

    def forward(self, n: Tensor, state: SsruState, layer: int) -> Tensor:
        """Read n tokens.  (R, n, D) -> (R, n, D)."""
        f, x = self.W(n).split(self.W.in_features, dim=-1)
        f = torch.sigmoid(f + self.b_f)
        if x.dtype in HALVES:
            f, x = f.float(), x.float()
        c = ssru_states(x, f, state.cell(layer, x))
        state.after.append(c[:, -1])
        return torch.relu(c).to(n.dtype)


class FeedForward(nn.Module):
    """W_2 f(W_1 x + b_1) + b_2, at every position alike."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.f, self.dropout = ACTIVATIONS[config.activation], config.inner_dropout
        self.W_1 = Product(config.width, config.inner)
        self.W_2 = Product(config.inner, config.width)

    def forward(self, x: Tensor, drops: DropoutMasks | None = None) -> Tensor:
        """x (B, n, D) -> (B, n, D). With `drops`, by a kernel that has ReLU only."""
        if drops is not None and self.f is F.relu:
            x = F.linear(x, self.W_1.weight)
            return self.W_2(relu_dropout(x, self.W_1.bias, self.dropout, drops))  # type: ignore[no-any-return]
        x = self.f(self.W_1(x))
        return self.W_2(dropout(x, self.dropout) if self.training else x)  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward layer."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.inside, self.around_inside = MultiHead(config), Residual(config)
        self.forward_layer, self.around_forward = FeedForward(config), Residual(config)

    def forward(self, h: Stream, mask: Mask, need_weights: bool) -> tuple[Stream, Tensor | None]:
        """h (B, S, D) -> (B, S, D), weights (B, H, S, S) if needed."""
        h, n = self.around_inside.before(h)
        q, k, v = self.inside.project(n)
        g, weights = self.inside.attend(q, k, v, mask, need_weights)
        h = self.around_inside.after(h, g)
        h, n = self.around_forward.before(h)
        return self.around_forward.after(h, self.forward_layer(n, h.drops)), weights


class DecoderLayer(nn.Module):
    """Self-attention to the tokens before or an SSRU, attention to the source, then the feed-forward layer."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.inside = Ssru(config) if config.cell == "ssru" else MultiHead(config)
        self.around_inside = Residual(config)
        self.across, self.around_across = MultiHead(config), Residual(config)
        self.forward_layer, self.around_forward = FeedForward(config), Residual(config)

    def forward(
        self,
        s: Stream,
        state: Cache | SsruState,
        layer: int,
        memory: Memory,
        masks: tuple[Mask, Mask],
        need_weights: NeedWeights | None,
    ) -> tuple[Stream, Tensor | None]:
        """s (R, n, D) -> (R, n, D), weights (R, H, n, S), or (R, H, n, t) of self-attention, if needed."""
        s, n = self.around_inside.before(s)
        g, inside = self._read(n, state, layer, masks[0], need_weights is not None and need_weights.self_attention)
        s = self.around_inside.after(s, g)

        k, v = memory.keys[2 * layer : 2 * layer + 2]
        s, n = self.around_across.before(s)
        R, B = n.shape[0], k.shape[0]
        # K hypotheses of one sentence are K·n queries: (B·K, n, D) is (B, K·n, D).
        q = self.across.query(n.view(B, -1, n.shape[-1]))
        g, across = self.across.attend(q, k, v, masks[1], need_weights is not None and not need_weights.self_attention)
        s = self.around_across.after(s, g.view_as(n))
        if across is not None and R > B:
            across = across.view(B, across.shape[1], -1, n.shape[1], across.shape[3]).transpose(1, 2).flatten(0, 1)

        s, n = self.around_forward.before(s)
        s = self.around_forward.after(s, self.forward_layer(n, s.drops))
        return s, across if inside is None else inside

    def _read(
        self, n: Tensor, state: Cache | SsruState, layer: int, mask: Mask, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Read the tokens: what the first sub-layer computes from them and those before.  n (R, n, D) -> (R, n, D)."""
        if isinstance(self.inside, Ssru):
            assert isinstance(state, SsruState)
            return self.inside(n, state, layer), None
        assert isinstance(state, Cache)
        q, k, v = self.inside.project(n)
        k, v = state.extend(layer, k, v)
        return self.inside.attend(q, k, v, mask, need_weights)


class Transformer(Packable):
    """Encoder: h = layers(E x √D + p). Decoder: s = layers(E y √D + p), attending to h. Logits: E s, or W_o s (+ b)."""

    def __init__(self, config: TransformerConfig, source: int | ImageConfig, target: int) -> None:
        super().__init__()
        D = config.width
        self.scale, self.dropout, self.pre = math.sqrt(D) if config.scale else 1.0, config.dropout, config.norm == "pre"
        if config.tied == "all" and isinstance(source, ImageConfig):
            raise ConfigError(
                "model.tied=all shares embeddings with the source, which is an image; set model.tied=target"
            )
        if config.tied == "all" and source != target:
            raise ConfigError(
                f"model.tied=all needs one vocabulary for both languages (text.joint=true), but there are "
                f"{source} source and {target} target tokens; or set model.tied=target"
            )
        self.channels, self.cell, self.positions = config.channels, config.cell, config.positions
        self.embedding = embedding(target, D)
        self.source: nn.Embedding | None = None
        self.regions: Regions | None = None
        if isinstance(source, ImageConfig):
            self.regions = Regions(source, D, config.dropout)
        elif config.tied != "all":
            self.source = embedding(source, D)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.depth))
        self.LN_h = nn.LayerNorm(D) if self.pre else nn.Identity()
        self.LN_s = nn.LayerNorm(D) if self.pre else nn.Identity()
        self.W_o = nn.Parameter(embedding(target, D).weight.data) if config.tied == "none" else None
        self.b_o = nn.Parameter(torch.zeros(target)) if config.bias else None
        self.table: Tensor | None = None  # of positions; not a buffer, which would be synchronised between processes
        self.earlier: list[Tensor] = []  # all such tables: a captured CUDA graph keeps reading its own
        self.packed: FastLayers | None = None  # the weights of all layers, packed for decoding
        self.packed_output: PackedOutput | None = None
        self.shortlist: Shortlist | None = None  # which tokens may be decoded; neither trained nor among the weights
        for module in [*self.encoder.modules(), *self.decoder.modules()]:
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def position_vectors(self, n: int) -> Tensor:
        """Return the positions of n tokens or more, from a table on the weights' device.  (≥ n, D)."""
        table, W = self.table, self.embedding.weight
        if table is None or len(table) < n or table.device != W.device or table.dtype != W.dtype:
            size = max(POSITIONS, 1 << (n - 1).bit_length())
            with torch.inference_mode(False):  # training uses it, too
                self.table = table = positions(size, W.shape[1], W.data, self.positions)
            self.earlier.append(table)
        return table

    def embed(self, table: nn.Embedding, x: Tensor, p: Tensor) -> Tensor:
        """Return E x √D + p.  x (B, n), p (n, D) -> (B, n, D)."""
        e = torch.add(p, F.embedding(x, table.weight), alpha=self.scale)
        return dropout(e, self.dropout) if self.training else e

    @property
    def source_words(self) -> nn.Embedding | None:
        """The embedding of source tokens; None in a model of images."""
        return None if self.regions else self.source or self.embedding

    def embed_source(self, x: Tensor) -> Tensor:
        """Return the vectors of source tokens or of regions, with positions.  x (B, S), or an image -> (B, S, D)."""
        if self.regions is not None:
            return self.regions(x)  # type: ignore[no-any-return]
        return self.embed(self.source or self.embedding, x, self.position_vectors(x.shape[1])[: x.shape[1]])

    def encode(self, x: Tensor, keep: Tensor | None, need_weights: NeedWeights | None = None) -> Memory:
        """Encode the source and compute the keys.  x (B, S), keep (B, S) -> Memory."""
        h = self.embed_source(x)
        whole = keep is None  # an image has no padding
        keep = torch.ones(h.shape[:2], dtype=torch.bool, device=h.device) if keep is None else keep
        fast = not (x.is_cuda or self.training or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"))
        if fast and need_weights is None:
            padded = not whole and not bool(keep.all())
            mask = Mask.of(keep, h) if padded else Mask()
            rows = PackedRows(keep.shape[0], keep.shape[1], keep.flatten().nonzero()[:, 0] if padded else None)
            layers = self.fast_layers()
            h = self.LN_h(fast_encode(h, layers, mask.bias, mask.some, rows))
            keys, allowed = cross_keys(h, layers, rows), self._allowed(x, keep)
            return Memory(h, keep, keys, padded=padded, zeroed=True, allowed=allowed)
        h = h if whole else h.masked_fill(~keep[..., None], 0)  # the vector of padding may be anything, also NaN
        mask, all_weights = Mask() if whole else Mask.of(keep, h), []
        stream = Stream.of(h, self.training)
        for layer in self.encoder:
            stream, weights = layer(stream, mask, need_weights is not None)
            all_weights.append(weights)
        _, h = add_and_norm(stream, self.LN_h, self.dropout if self.training else 0.0)
        keys = tuple(part for layer in self.decoder for part in layer.across.keys(h))  # type: ignore[union-attr, operator]
        # One sentence usually has no padding; testing for it synchronises with the device.
        padded = not whole and (len(x) > 1 or torch.is_grad_enabled() or not bool(keep.all()))
        inside = torch.stack(all_weights, dim=1) if need_weights else None
        return Memory(h, keep, keys, (), inside, padded, allowed=self._allowed(x, keep))

    def _allowed(self, x: Tensor, keep: Tensor) -> Allowed | None:
        """Return the tokens that may be decoded, if there is a shortlist; training needs all.  x, keep (B, S)."""
        if self.shortlist is None or self.training:
            return None
        self.shortlist = self.shortlist.to(x.device)
        return self.shortlist.allowed(x, keep)

    def start(self, memory: Memory, capacity: int) -> Cache | SsruState:
        """Return the state before the first token, for `capacity` tokens at most."""
        state = (SsruState if self.cell == "ssru" else Cache)(len(self.decoder), capacity, self.position_vectors)
        state.new_rows = memory.keep.shape[0]
        return state

    def slots(self, memory: Memory, K: int, capacity: int) -> TransformerSlots:
        """Return a decoder over static shapes, with a state that never grows."""
        return (SsruSlots if self.cell == "ssru" else TransformerSlots)(self, memory, K, capacity)

    def step(
        self, y: Tensor, state: Cache | SsruState, memory: Memory, need_weights: NeedWeights | None = None
    ) -> Step:
        """Decode n tokens.  y (R, n) -> hidden (R, n, D), the state after them, weights (R, L, H, n, S) if needed."""
        n = y.shape[1]
        s = self.embed(self.embedding, y, state.next_positions(n))
        if (
            n == 1
            and need_weights is None
            and not torch.is_grad_enabled()
            and not self.training
            and not state.with_grad
        ):
            s = self._fast_step(s[:, 0], state, memory)[:, None]
            state.advance(1)
            return Step(self.LN_s(s), state, None)
        if state.offset is not None:
            raise ShapeError("sentences that began at different times are decoded one token at a time, without weights")
        stream, weights = self._layers(s, state, memory, need_weights, len(self.decoder))
        state.advance(n)
        _, s = add_and_norm(stream, self.LN_s, self.dropout if self.training else 0.0)
        return Step(s, state, weights)

    def _fast_step(self, s: Tensor, state: Cache | SsruState, memory: Memory) -> Tensor:
        """Go through all layers with one token, without gradients.  s (R, D) -> (R, D)."""
        if isinstance(state, SsruState):
            state.fast = state.fast or FastSsruDecoder(self.fast_layers())
            return state.fast(s, state, memory)
        state.fast = state.fast or FastDecoder(self.fast_layers())
        return state.fast(s, state, memory)

    def _layers(
        self, s: Tensor, state: Cache | SsruState, memory: Memory, need_weights: NeedWeights | None, depth: int
    ) -> tuple[Stream, Tensor | None]:
        """Go through the first `depth` layers.  s (R, n, D) -> (R, n, D), weights (R, L, H, n, S) if needed."""
        n, weighted = s.shape[1], self._weighted(need_weights)
        all_weights = []
        recurrent = self.cell == "ssru"  # which needs no mask
        back = Mask() if recurrent else Mask.causal(n, state.length + n, s, need_weights is not None)
        across = Mask.of(memory.keep, s) if memory.padded else Mask()
        stream = Stream.of(s, self.training)
        for number, layer in enumerate(self.decoder[:depth]):
            needed = need_weights if number in weighted else None
            stream, weights = layer(stream, state, number, memory, (back, across), needed)
            all_weights += [] if weights is None else [weights]
        return stream, torch.stack(all_weights, dim=1) if need_weights else None

    def _weighted(self, need_weights: NeedWeights | None) -> range:
        """Return the layers whose weights are needed; raise ConfigError if there is no such layer."""
        if need_weights is None:
            return range(0)
        if need_weights.self_attention and self.cell != "self-attention":
            raise ConfigError(
                f"the decoder has no self-attention (model.cell={self.cell}); it has attention to the source"
            )
        if need_weights.layer is None:
            return range(len(self.decoder))
        layer = need_weights.layer_of(len(self.decoder))
        return range(layer, layer + 1)

    def reread(
        self,
        y: Tensor,
        lengths: Sequence[int],
        memory: Memory,
        need_weights: NeedWeights | None = None,
        need_hidden: bool = True,
    ) -> Reread:
        """Decode whole sentences with teacher forcing.  y (B, T) -> hidden (N, D), weights (B, L, H, T, S).

        Without `need_hidden`, up to the last layer whose weights are needed.
        """
        B, T = y.shape
        real = PackedRows.real(lengths, T).to(y.device)
        inside = need_weights is not None and need_weights.self_attention
        if inside or y.is_cuda or self.training or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            weighted = self._weighted(need_weights)
            depth = len(self.decoder) if need_hidden or not weighted else weighted[-1] + 1
            s = self.embed(self.embedding, y, self.position_vectors(T)[:T])
            stream, weights = self._layers(s, self.start(memory, T), memory, need_weights, depth)
            if not need_hidden:
                return Reread(None, weights)
            _, s = add_and_norm(stream, self.LN_s, self.dropout if self.training else 0.0)
            return Reread(s.flatten(0, 1)[real], weights)
        rows = PackedRows(B, T, None if len(real) == B * T else real)
        s = self.embed(self.embedding, y.flatten()[real], self.position_vectors(T)[real % T])
        s, each = fast_reread(s, rows, self.fast_layers(), memory, self._weighted(need_weights), need_hidden)
        return Reread(self.LN_s(s) if need_hidden else None, torch.stack(each, dim=1) if each else None)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the scores of all tokens.  hidden (…, D) -> (…, V)."""
        W, packed = self._output_weight, self.packed_output
        if W.dtype in HALVES and hidden.dtype == W.dtype and not torch.is_grad_enabled():
            return self._whole_logits(hidden, W)
        if packed is not None and not torch.is_grad_enabled() and packed.current:
            return packed(hidden)
        return product(hidden, W, self.b_o)

    def output_rows(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return W and b of the scores of some tokens, in fp32.  (n,) -> (n, D), (n,)."""
        return self._output_weight[tokens].float(), None if self.b_o is None else self.b_o[tokens].float()

    def _whole_logits(self, hidden: Tensor, W: Tensor) -> Tensor:
        """Return the logits of a model in bf16 in fp32: rounded to 8 bits, the best tokens would often be equal."""
        if hidden.is_cuda:
            flat = torch.mm(hidden.reshape(-1, W.shape[1]), W.t(), out_dtype=torch.float32)
            logits = flat.view(*hidden.shape[:-1], W.shape[0])
        else:
            logits = F.linear(hidden.float(), W.float())
        return logits if self.b_o is None else logits + self.b_o

    def bf16_weights(self) -> list[Tensor]:
        """Return the weights that bf16 training may round in one operation: those that only layers' products use."""
        modules = [(name, module) for name, module in self.named_modules() if not name.startswith("regions.")]
        products = [(name, module) for name, module in modules if isinstance(module, nn.Linear)]
        # A kernel adds that of W_1; an SSRU's has none.
        biases = [module.bias for name, module in products if not name.endswith("W_1") and module.bias is not None]
        return [*(module.weight for _, module in products), *biases]

    def norms(self, memory: Memory) -> Tensor:
        """Return ‖W_o^i (W_v^i h_j + b_v)‖ of every layer's heads.  (B, L, H, S)."""
        values = zip(self.decoder, memory.keys[1::2], strict=True)
        return torch.stack([layer.across.norms(v) for layer, v in values], dim=1)  # type: ignore[union-attr, operator]

    @property
    def _output_weight(self) -> Tensor:
        return self.embedding.weight if self.W_o is None else self.W_o

    def fast_layers(self) -> FastLayers:
        """Return the weights of all layers as fast encoding and decoding take them: packed, if they are current."""
        if self.packed is not None and self.packed.current:
            return self.packed
        return FastLayers(self.encoder, self.decoder, self.channels, self.pre)

    def train(self, mode: bool = True) -> Transformer:
        """Set the mode; in training no packed copy is kept, because the weights change."""
        if mode:
            self.pack(False)
        return super().train(mode)

    def pack(self, decoding: bool) -> None:
        """Keep packed copies of the weights of the layers and of the output, or drop them."""
        self.packed, self.packed_output = None, None
        if decoding and not self.training:
            self.packed = FastLayers(self.encoder, self.decoder, self.channels, self.pre, packed=True)
            self.packed_output = PackedOutput(self._output_weight, self.b_o)
