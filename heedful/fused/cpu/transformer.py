"""The Transformer with as few operations as possible: packed products, an encoder, decoders for one token and for all.

`EncoderLayer`, `DecoderLayer` and `MultiHead.keys` in `heedful.models.transformer` are the definition. The products of
a short sentence, or of one token, are small, and much time goes into calling them. So the weights are gathered once, a
state is (R, D) instead of (R, 1, D), the scale and the mask of the scores are part of their product, and no attention
weights are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heedful.attention import mask_bias
from heedful.fused.cpu.linear import divides, onednn_rows, reorder
from heedful.fused.ssru import ssru_states

HALVES = (torch.bfloat16, torch.float16)
BLOCK = 8  # positions whose views are made at once; those after the last token are masked
FEW = 64  # rows up to which BLAS is faster with a matrix that lies in memory by its inputs


class PackedLinear:
    """x Wᵀ + b with weights that do not change.  W (out, in), b (out,).

    oneDNN computes it from `rows` rows on, from a copy in its own layout, and BLAS for fewer, but see `divides`. If
    `rows` is 0, BLAS computes everything, and nothing is copied.
    """

    __slots__ = ("W_t", "b", "divides", "packed", "rows")

    def __init__(self, W: Tensor, b: Tensor | None, rows: int = 0) -> None:
        self.W_t, self.b, self.rows = W.detach().t(), None if b is None else b.detach(), rows
        self.packed, self.divides = reorder(W.detach()) if rows else None, divides(W, rows)

    def takes(self, count: int) -> bool:
        """Whether oneDNN multiplies so many rows."""
        return count >= self.rows > 0 or (self.divides and count == 1 and torch.get_num_threads() > 1)

    def __call__(self, x: Tensor) -> Tensor:
        """Return x Wᵀ + b.  x (R, in) -> (R, out)."""
        if self.packed is not None and self.takes(x.shape[0]):  # len(x) takes longer
            return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.b, "none", (), "")  # type: ignore[no-any-return]
        return torch.mm(x, self.W_t) if self.b is None else torch.addmm(self.b, x, self.W_t)


class PackedWeights:
    """Packed copies of `weights`, to be used while these do not change. They are neither copied nor saved."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.weights = list(weights)
        self.state = self._state()

    @property
    def current(self) -> bool:
        """Whether the weights are still those that were packed."""
        return self._state() == self.state

    def _state(self) -> list[tuple[int, int]]:
        return [(weight.data_ptr(), weight._version) for weight in self.weights]

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()


class PackedOutput(PackedWeights):
    """A large matrix, packed: for oneDNN where that is faster, otherwise by its inputs, for few rows."""

    def __init__(self, W: Tensor, b: Tensor | None) -> None:
        super().__init__([W] if b is None else [W, b])
        rows = onednn_rows([W])
        self.product = self.few = PackedLinear(W, b, rows)
        self.most = rows - 1 if rows else FEW  # rows that are few
        if self.most and not W.t().is_contiguous():
            self.few = PackedLinear(W.detach().t().contiguous().t(), b)

    def __call__(self, x: Tensor) -> Tensor:
        """Return x Wᵀ + b.  x (…, in) -> (…, out)."""
        flat = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
        count = flat.shape[0]
        few = count <= self.most and not self.product.takes(count)
        y = (self.few if few else self.product)(flat)
        return y if x.dim() == 2 else y.view(*x.shape[:-1], -1)


class PackedRows:
    """The real positions of sentences with padding on the right, for products of these alone; attention needs all.

    `places` (N,) are those of the real positions among all B·n; None if all are real.
    """

    def __init__(self, B: int, n: int, places: Tensor | None) -> None:
        self.B, self.n, self.places = B, n, places

    @staticmethod
    def real(lengths: Sequence[int], n: int) -> Tensor:
        """Return the places of the real positions of sentences of some lengths.  (N,).

        >>> PackedRows.real([2, 1], 3).tolist()
        [0, 1, 3]
        """
        return (torch.arange(n) < torch.tensor(lengths)[:, None]).flatten().nonzero()[:, 0]

    def pack(self, x: Tensor) -> Tensor:
        """Return the real rows.  (B, n, D) -> (N, D)."""
        x = x.reshape(self.B * self.n, -1)
        return x if self.places is None else x.index_select(0, self.places)

    def unpack(self, x: Tensor) -> Tensor:
        """Return the rows with padding of zeros.  (N, D) -> (B, n, D)."""
        if self.places is not None:
            x = x.new_zeros(self.B * self.n, x.shape[1]).index_copy_(0, self.places, x)
        return x.view(self.B, self.n, -1)

    def heads(self, x: Tensor, parts: int, C: int) -> tuple[Tensor, ...]:
        """Cut into heads, with padding.  x (N, parts·H·C) -> (B, H, n, C) for each part."""
        return self.unpack(x).view(self.B, self.n, parts, -1, C).permute(2, 0, 3, 1, 4).unbind(0)


class _FastEncoderLayer:
    """The products of one layer of the encoder, its activation, and what `layer_norm` takes."""

    def __init__(self, layer: Any, rows: int) -> None:  # noqa: ANN401  (an `EncoderLayer`)
        inside, forward = layer.inside, layer.forward_layer
        self.qkv, self.inside_o = _product(inside.W, rows), _product(inside.W_o, rows)
        self.W_1, self.W_2, self.f = _product(forward.W_1, rows), _product(forward.W_2, rows), forward.f
        self.norms = _norms(layer.around_inside, layer.around_forward)


class _FastDecoderLayer:
    """The products of one layer of the decoder; `keys` is that of the source's keys and values."""

    def __init__(self, layer: Any, rows: int) -> None:  # noqa: ANN401  (a `DecoderLayer`)
        inside, across, forward, D = layer.inside, layer.across, layer.forward_layer, layer.across.W.in_features
        W, b = across.W.weight, across.W.bias
        b_f = getattr(inside, "b_f", None)
        self.ssru = b_f is not None
        if b_f is not None:  # the gates before the sigmoid and W x, by one product
            self.fx = PackedLinear(inside.W.weight, torch.cat([b_f, torch.zeros_like(b_f)]), rows)
        else:
            self.qkv, self.inside_o = _product(inside.W, rows), _product(inside.W_o, rows)
        self.q, self.keys = PackedLinear(W[:D], b[:D], rows), PackedLinear(W[D:], b[D:], rows)
        self.across_o = _product(across.W_o, rows)
        self.W_1, self.W_2, self.f = _product(forward.W_1, rows), _product(forward.W_2, rows), forward.f
        self.norms = _norms(layer.around_inside, layer.around_across, layer.around_forward)


def _product(linear: nn.Linear, rows: int) -> PackedLinear:
    return PackedLinear(linear.weight, linear.bias, rows)


def _norms(*around: Any) -> list[tuple[list[int], Tensor, Tensor, float]]:  # noqa: ANN401  (`Residual`s)
    return [(list(each.LN.normalized_shape), each.LN.weight, each.LN.bias, each.LN.eps) for each in around]


class FastLayers(PackedWeights):
    """The weights of the encoder's and the decoder's layers as `fast_encode`, `cross_keys` and `FastDecoder` take them.

    If `packed`, products are packed for oneDNN where that is faster. C is the width of a head.
    """

    def __init__(
        self, encoder: Iterable[nn.Module], decoder: Iterable[nn.Module], C: int, pre: bool, packed: bool = False
    ) -> None:
        encoder, decoder, self.C, self.pre = list(encoder), list(decoder), C, pre
        weights = [weight for layer in (*encoder, *decoder) for weight in layer.parameters()] if packed else []
        super().__init__(weights)
        rows = onednn_rows(weights) if packed else 0
        self.encoder = [_FastEncoderLayer(layer, rows) for layer in encoder]
        self.decoder = [_FastDecoderLayer(layer, rows) for layer in decoder]


def fast_encode(
    h: Tensor, layers: FastLayers, bias: Tensor | None, some: Tensor | None, rows: PackedRows | None = None
) -> Tensor:
    """Go through all layers, without attention weights and without gradients.  h (B, S, D) -> (B, S, D).

    `bias` (B, 1, 1, S) is the mask to add to scores, `some` (B, 1, 1, 1) 0 for a row with nothing to attend to; `rows`
    are the positions to compute, by default all.
    """
    some = None if some is None or bool(some.all()) else some
    rows = rows or PackedRows(h.shape[0], h.shape[1], None)
    C, pre, norm, h = layers.C, layers.pre, torch.layer_norm, rows.pack(h)
    for layer in layers.encoder:
        inside, forward = layer.norms
        q, k, v = rows.heads(layer.qkv(norm(h, *inside) if pre else h), 3, C)
        c = F.scaled_dot_product_attention(q, k, v, bias)
        c = rows.pack((c if some is None else c * some).transpose(1, 2))
        h = layer.inside_o(c).add_(h)
        h = h if pre else norm(h, *inside)
        h = layer.W_2(layer.f(layer.W_1(norm(h, *forward) if pre else h))).add_(h)
        h = h if pre else norm(h, *forward)
    return rows.unpack(h)


def cross_keys(h: Tensor, layers: FastLayers, rows: PackedRows | None = None) -> tuple[Tensor, ...]:
    """Return keys and values for each layer of the decoder.  h (B, S, D) -> 2 L (B, H, S, C)."""
    rows = rows or PackedRows(h.shape[0], h.shape[1], None)
    h = rows.pack(h)
    keys: list[Tensor] = []
    for layer in layers.decoder:
        keys += (part.contiguous() for part in rows.heads(layer.keys(h), 2, layers.C))
    return tuple(keys)


def fast_reread(
    s: Tensor,
    rows: PackedRows,
    layers: FastLayers,
    memory: Any,  # noqa: ANN401  (a `Memory`)
    weighted: range,
    need_hidden: bool,
) -> tuple[Tensor, list[Tensor]]:
    """Go through the layers with all target tokens, without gradients.  s (N, D) -> (N, D), weights (B, H, T, S) each.

    The weights over the source are those of the `weighted` layers. Without `need_hidden`, nothing after them is
    computed, and the vectors are those of the last sub-layer before.
    """
    keep, C, pre, norm = memory.keep, layers.C, layers.pre, torch.layer_norm
    bias = mask_bias(keep, s.dtype)[:, None, None] if memory.padded else None
    some = None if not memory.padded or bool(keep.any(1).all()) else keep.any(1)[:, None, None, None].to(s.dtype)
    all_weights: list[Tensor] = []
    for number, layer in enumerate(layers.decoder):
        inside, across, forward = layer.norms
        n = norm(s, *inside) if pre else s
        if layer.ssru:
            s = rows.pack(_ssru(rows.unpack(layer.fx(n)))).add_(s)
        else:
            q, k, v = rows.heads(layer.qkv(n), 3, C)
            c = rows.pack(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2))
            s = layer.inside_o(c).add_(s)
        s = s if pre else norm(s, *inside)

        k, v = memory.keys[2 * number : 2 * number + 2]
        (q,) = rows.heads(layer.q(norm(s, *across) if pre else s), 1, C)
        if number in weighted:
            weights = _cross_weights(q, k, bias)
            all_weights.append(weights if some is None else weights.mul_(some))
            if not need_hidden and number == weighted[-1]:
                break
            c = all_weights[-1] @ v
        else:
            c = F.scaled_dot_product_attention(q, k, v, bias)
            c = c if some is None else c * some
        s = layer.across_o(rows.pack(c.transpose(1, 2))).add_(s)
        s = s if pre else norm(s, *across)
        s = layer.W_2(layer.f(layer.W_1(norm(s, *forward) if pre else s))).add_(s)
        s = s if pre else norm(s, *forward)
    return s, all_weights


def _ssru(fx: Tensor) -> Tensor:
    """Return relu(c_t) of all tokens.  fx (B, T, 2D), the gates before the sigmoid and W x -> (B, T, D)."""
    f, x = (fx.float() if fx.dtype in HALVES else fx).chunk(2, dim=-1)
    return ssru_states(x, f.sigmoid(), x.new_zeros(x.shape[0], x.shape[2])).relu_().to(fx.dtype)


def _cross_weights(q: Tensor, k: Tensor, bias: Tensor | None) -> Tensor:
    """Return softmax(q · k / √C + bias).  q (B, H, T, C), k (B, H, S, C) -> (B, H, T, S)."""
    B, H, T, C = q.shape
    scores = torch.bmm(q.reshape(B * H, T, C), k.reshape(B * H, -1, C).transpose(1, 2)).view(B, H, T, -1)
    scores = scores.mul_(C**-0.5) if bias is None else torch.add(bias, scores, alpha=C**-0.5)
    return scores.softmax(-1)


class _SourceAttention(NamedTuple):
    """Attention to the source in one layer: keys (B·H, C, S), values (B·H, S, C), and the mask to add to scores."""

    layer: _FastDecoderLayer
    keys: Tensor
    values: Tensor
    mask: Tensor
    beta: float
    scale: float

    def __call__(self, x: Tensor, s: Tensor) -> Tensor:
        """Return s and what was attended to.  Queries of x (R, D), s (R, D) -> (R, D)."""
        (R, D), (BH, C, _), H = x.shape, self.keys.shape, x.shape[1] // self.keys.shape[1]
        K, q = R * H // BH, self.layer.q(x)
        q = q.view(BH, 1, C) if K == 1 else q.view(-1, K, H, C).transpose(1, 2).reshape(BH, K, C)
        weights = torch.baddbmm(self.mask, q, self.keys, beta=self.beta, alpha=self.scale).softmax(-1)
        c = torch.bmm(weights, self.values)
        c = c.view(R, D) if K == 1 else c.view(-1, H, K, C).transpose(1, 2).reshape(R, D)
        return self.layer.across_o(c).add_(s)


class _OneSource(NamedTuple):
    """The same for a single short sentence: W_q is multiplied by its keys and W_o by its values, once.

    With M_h = W_q,hᵀ k_h / √C and N_h = W_o,h v_h the scores are x M + b, and the result is s + softmax(scores) N. For
    at most C tokens, M (D, H·S) and N (H·S, D) are smaller than W_q and W_o.
    """

    M: Tensor
    b: Tensor
    N: Tensor
    H: int

    @classmethod
    def of(cls, layer: _FastDecoderLayer, k: Tensor, v: Tensor) -> _OneSource:
        """Multiply the weights of a layer by the keys and values of a sentence.  k, v (H, S, C)."""
        (H, S, C), D, scale = k.shape, layer.q.W_t.shape[0], k.shape[2] ** -0.5
        W_q, W_o = layer.q.W_t.reshape(D, H, C).permute(1, 2, 0), layer.across_o.W_t.reshape(H, C, D)
        b_q, b_o = layer.q.b, layer.across_o.b
        assert b_q is not None
        assert b_o is not None
        M = torch.bmm(k, W_q).mul_(scale).view(H * S, D).t().contiguous()
        N = torch.bmm(v, W_o)
        N[0] += b_o  # the weights of a head sum to 1
        return cls(M, torch.bmm(k, b_q.view(H, C, 1)).mul_(scale).view(H * S), N.view(H * S, D), H)

    def __call__(self, x: Tensor, s: Tensor) -> Tensor:
        """Return s and what was attended to.  Queries of x (K, D), s (K, D) -> (K, D)."""
        weights = torch.addmm(self.b, x, self.M).view(len(x) * self.H, -1).softmax(-1)
        return torch.addmm(s, weights.view(len(x), -1), self.N)


class _Past(NamedTuple):
    """Views of a cache's buffer for the positions of a block: where each layer's keys and values are."""

    room: Tensor  # the buffer (L, 2, R, H, size, C)
    slots: Tensor  # (L, R, 2, H, size, C)
    layers: list[tuple[Tensor, Tensor]]  # keys (R·H, C, n) and values (R·H, n, C)


class _FastLayersOfOneToken:
    """The weights of the decoder's layers, and the attention of each to the source, for one token."""

    def __init__(self, layers: FastLayers) -> None:
        self.layers, self.C, self.pre, self.scale = layers.decoder, layers.C, layers.pre, layers.C**-0.5
        self.memory: Any = None
        self.sources: list[_SourceAttention | _OneSource] = []  # of each layer, for this memory

    def _prepare(self, memory: Any) -> list[_SourceAttention | _OneSource]:  # noqa: ANN401
        """Prepare the keys, the values and the mask of a memory: once, until sentences leave it."""
        B, H = len(memory.keep), memory.keys[0].shape[1]
        flat = [part.reshape(B * H, -1, self.C) for part in memory.keys]
        pairs = list(zip(self.layers, flat[::2], flat[1::2], strict=True))
        if B == 1 and not memory.padded and flat[0].shape[1] <= self.C:
            return [_OneSource.of(layer, k, v) for layer, k, v in pairs]
        mask, beta = flat[0].new_zeros(()), 0.0
        if memory.padded:
            keep = memory.keep.repeat_interleave(H, 0)
            mask, beta = mask_bias(keep, flat[0].dtype)[:, None], 1.0
            if not memory.zeroed:  # padding may hold anything; and a row with nothing to attend to gives zeros
                gone = ~keep[..., None]
                pairs = [(layer, k.masked_fill(gone, 0.0), v.masked_fill(gone, 0.0)) for layer, k, v in pairs]
        return [_SourceAttention(layer, k.transpose(1, 2), v, mask, beta, self.scale) for layer, k, v in pairs]


class FastDecoder(_FastLayersOfOneToken):
    """The decoder's layers for one token of each hypothesis, without attention weights and without gradients."""

    def __init__(self, layers: FastLayers) -> None:
        super().__init__(layers)
        self.past: list[_Past] = []  # of the current block; beam search takes turns between two buffers
        self.until: Sequence[Tensor] = ()  # masks (1, 1, n) of the positions of the current block
        self.end = 0  # of the current block

    def __call__(self, s: Tensor, cache: Any, memory: Any) -> Tensor:  # noqa: ANN401  (a `Cache` and a `Memory`)
        """Go through all layers.  s (R, D) -> (R, D)."""
        (R, D), C = s.shape, self.C
        H = D // C
        if memory is not self.memory:
            self.memory, self.sources = memory, self._prepare(memory)
        room = cache.make_room(s, R, H, C)
        t = cache.length
        past = self._past(room, t)
        back = self.until[t - self.end] if cache.offset is None else _since(cache.offset, t, self.end, H, s)
        pre, scale, norm = self.pre, self.scale, torch.layer_norm
        slots = past.slots.select(4, t).unbind(0)
        for layer, slot, (k, v), source in zip(self.layers, slots, past.layers, self.sources, strict=True):
            inside, across, forward = layer.norms
            q, kv = layer.qkv(norm(s, *inside) if pre else s).split_with_sizes((D, 2 * D), 1)
            slot.copy_(kv.view(R, 2, H, C))
            weights = torch.baddbmm(back, q.reshape(R * H, 1, C), k, alpha=scale).softmax(-1)
            s = layer.inside_o(torch.bmm(weights, v).view(R, D)).add_(s)
            s = s if pre else norm(s, *inside)

            s = source(norm(s, *across) if pre else s, s)
            s = s if pre else norm(s, *across)

            s = layer.W_2(layer.f(layer.W_1(norm(s, *forward) if pre else s))).add_(s)
            s = s if pre else norm(s, *forward)
        return s

    def _past(self, room: Tensor, t: int) -> _Past:
        """Return the views of a buffer for token t, up to the end of its block; what is after t is masked."""
        end = min(t // BLOCK * BLOCK + BLOCK, room.shape[4])
        if end != self.end or t - end < -len(self.until):
            self.past, self.end = [], end
            positions = torch.arange(end, device=room.device)
            keep = positions <= positions[t // BLOCK * BLOCK :, None]
            self.until = mask_bias(keep, room.dtype)[:, None, None].unbind(0)
        for past in self.past:
            if past.room is room:
                return past
        L, _, R, H, size, C = room.shape
        k, v = room.view(L, 2, R * H, size, C)[:, :, :, :end].unbind(1)
        past = _Past(room, room.transpose(1, 2), list(zip(k.transpose(2, 3).unbind(0), v.unbind(0), strict=True)))
        self.past = [past, *self.past[:1]]
        return past


class FastSsruDecoder(_FastLayersOfOneToken):
    """The same for a decoder with SSRUs. c_t is overwritten."""

    def __call__(self, s: Tensor, state: Any, memory: Any) -> Tensor:  # noqa: ANN401  (an `SsruState` and a `Memory`)
        """Go through all layers.  s (R, D) -> (R, D)."""
        if memory is not self.memory:
            self.memory, self.sources = memory, self._prepare(memory)
        pre, norm, D, half = self.pre, torch.layer_norm, s.shape[1], s.dtype in HALVES
        cells = state.make_room(s.float() if half else s).unbind(0)
        for layer, c, source in zip(self.layers, cells, self.sources, strict=True):
            inside, across, forward = layer.norms
            fx = layer.fx(norm(s, *inside) if pre else s)
            f, x = (fx.float() if half else fx).split_with_sizes((D, D), 1)
            torch.lerp(x, c, f.sigmoid_(), out=c)
            s = torch.relu(c).add_(s) if not half else torch.relu(c).to(s.dtype).add_(s)
            s = s if pre else norm(s, *inside)

            s = source(norm(s, *across) if pre else s, s)
            s = s if pre else norm(s, *across)

            s = layer.W_2(layer.f(layer.W_1(norm(s, *forward) if pre else s))).add_(s)
            s = s if pre else norm(s, *forward)
        return s


def _since(offset: Tensor, t: int, end: int, H: int, like: Tensor) -> Tensor:
    """Return the mask of what is before the first token of each sentence, and after token t.  (R·H, 1, end)."""
    positions = torch.arange(end, device=offset.device)
    keep = (positions >= offset[:, None]) & (positions <= t)
    return mask_bias(keep, like.dtype).repeat_interleave(H, 0)[:, None]
