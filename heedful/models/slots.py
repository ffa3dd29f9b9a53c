"""Decoders over static shapes (`SlotState`): the Transformer's, and that of a recurrent model.

`step` of each model is the definition. Here all tensors stay where they are and every sentence has its own position, so
that a CUDA graph of a step can be replayed, and sentences enter and leave at any step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heedful.fused.triton.cached_attention import attend_cache, attend_source
from heedful.fused.triton.linear import linear
from heedful.fused.triton.policy import usable
from heedful.fused.triton.sublayers import residual_norm
from heedful.models.protocol import Memory, Seq2Seq

if TYPE_CHECKING:
    from heedful.models.rnn import RecurrentState
    from heedful.models.transformer import DecoderLayer, MultiHead, Ssru, Transformer

Product = tuple[Tensor, Tensor]  # W and b


class RecurrentSlots:
    """The slots of a recurrent model: its state is small, and copied to where it was."""

    def __init__(self, model: Seq2Seq, memory: Memory, K: int) -> None:
        self.model, self.memory, self.K = model, memory, K
        self.state = self._start(memory)
        for tensor in self.state.tensors:
            tensor.zero_()
        self.after = self.state

    def _start(self, memory: Memory) -> RecurrentState:
        """Return the state before the first token, for all K rows of each sentence, in tensors of its own."""
        rows = torch.arange(len(memory.keep), device=memory.keep.device).repeat_interleave(self.K)
        return cast("RecurrentState", self.model.start(memory, 0)).select(rows)

    @property
    def nbytes(self) -> int:
        """How much memory the state takes, with the source's."""
        return sum(tensor.nbytes for tensor in (*self.state.tensors, self.memory.h, *self.memory.keys))

    def put(self, slots: Tensor, memory: Memory) -> None:
        """Begin new sentences in some slots."""
        rows = (slots[:, None] * self.K + torch.arange(self.K, device=slots.device)).flatten()
        for ours, theirs in zip(self.state.tensors, self._start(memory).tensors, strict=True):
            ours.index_copy_(0, rows, theirs)
        self.memory.put(slots, memory)

    def step(self, y: Tensor, t: Tensor) -> Tensor:
        """Decode one token for each row.  y (B·K,) -> (B·K, V)."""
        hidden, after, _ = self.model.step(y[:, None], self.state, self.memory)
        self.after = cast("RecurrentState", after)
        return self.model.logits(hidden[:, 0])

    def advance(self, parents: Tensor | None) -> None:
        """Take the state after the step, of the rows' parents."""
        after = self.after if parents is None else self.after.select(parents)
        for ours, theirs in zip(self.state.tensors, after.tensors, strict=True):
            ours.copy_(theirs)
        self.after = self.state


class _SlotLayer:
    """The weights of one layer of the decoder, as products take them; LN and the last product of each sub-layer."""

    def __init__(self, layer: DecoderLayer) -> None:
        self.inside, across, forward = layer.inside, layer.across, layer.forward_layer
        D = across.W.in_features
        self.q = (across.W.weight[:D], across.W.bias[:D])
        self.W_1, self.f = (forward.W_1.weight, forward.W_1.bias), forward.f
        self.across_o, self.W_2 = ((W.weight, W.bias) for W in (across.W_o, forward.W_2))
        around = (layer.around_inside, layer.around_across, layer.around_forward)
        self.inside_LN, self.across_LN, self.forward_LN = (residual.LN for residual in around)


def _add_norm(s: Tensor, g: Tensor | None, LN: nn.Module) -> tuple[Tensor, Tensor]:
    """Return s + g and its LN, by one kernel where kernels are used.  (R, D) each; g is overwritten."""
    if isinstance(LN, nn.LayerNorm) and usable(s):
        return residual_norm(s, g, LN, 0.0, None, s.dtype)
    s = s if g is None else g.add_(s)
    return s, LN(s)


class TransformerSlots:
    """The slots of a Transformer: keys and values of L layers, (2, R, H, capacity + 1, C) each.

    A slot that is finished stays at its last position; one more position than `capacity` takes what it writes there.
    With K > 1, `rows` (R, capacity + 1) says in which row of the cache each position of a hypothesis is: hypotheses are
    reordered by that table, and nothing is copied.
    """

    def __init__(self, model: Transformer, memory: Memory, K: int, capacity: int) -> None:
        self.model, self.memory, self.K = model, memory, K
        self.layers = [_SlotLayer(cast("DecoderLayer", layer)) for layer in model.decoder]
        self.positions = model.position_vectors(capacity + 1)
        self.lengths = memory.keep.sum(1)
        self._allocate(model.embedding.weight, len(memory.keep) * K, capacity + 1)

    def _allocate(self, W: Tensor, R: int, T: int) -> None:
        """Make the tensors of the state, for R rows and T positions, with the type of W."""
        C, K = self.model.channels, self.K
        self.cache = W.new_zeros(len(self.layers), 2, R, W.shape[1] // C, T, C)
        self.rows = torch.zeros(R, T, dtype=torch.long, device=W.device) if K > 1 else None

    @property
    def nbytes(self) -> int:
        """How much memory the cache takes, with the source's."""
        return self.cache.nbytes + sum(tensor.nbytes for tensor in (self.memory.h, *self.memory.keys))

    def put(self, slots: Tensor, memory: Memory) -> None:
        """Begin new sentences in some slots; the cache is written before it is read."""
        self.lengths.index_copy_(0, slots, memory.keep.sum(1))
        self.memory.put(slots, memory)

    def step(self, y: Tensor, t: Tensor) -> Tensor:
        """Decode one token for each row.  y (B·K,), t (B,) -> (B·K, V)."""
        model, keys = self.model, self.memory.keys
        e = F.embedding(y, model.embedding.weight).view(len(t), self.K, -1)
        s = torch.add(F.embedding(t, self.positions)[:, None], e, alpha=model.scale).view(len(y), -1)
        g: Tensor | None = None  # what is to be added to s
        for number, (layer, k, v) in enumerate(zip(self.layers, keys[::2], keys[1::2], strict=True)):
            s, n, g = self._before(s, g, layer.inside_LN)
            s, g = self._after(s, self._read(n, t, number), layer.inside_LN)
            s, n, g = self._before(s, g, layer.across_LN)
            x = attend_source(linear(n, *layer.q), k, v, self.lengths)
            s, g = self._after(s, linear(x, *layer.across_o), layer.across_LN)
            s, n, g = self._before(s, g, layer.forward_LN)
            x = linear(n, *layer.W_1, layer.f)
            s, g = self._after(s, linear(x, *layer.W_2), layer.forward_LN)
        return model.logits(s if g is None else _add_norm(s, g, model.LN_s)[1])

    def _read(self, n: Tensor, t: Tensor, number: int) -> Tensor:
        """Return what the first sub-layer of a layer computes from the tokens so far.  n (R, D), t (B,) -> (R, D)."""
        inside, (k, v) = cast("MultiHead", self.layers[number].inside), self.cache[number]
        x = attend_cache(linear(n, inside.W.weight, inside.W.bias), k, v, t, self.rows)
        return linear(x, inside.W_o.weight, inside.W_o.bias)

    def _before(self, s: Tensor, g: Tensor | None, LN: nn.Module) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the stream, the input of a sub-layer, and what is still to be added to the stream."""
        return (*_add_norm(s, g, LN), None) if self.model.pre else (s, s, None)

    def _after(self, s: Tensor, g: Tensor, LN: nn.Module) -> tuple[Tensor, Tensor | None]:
        """Return the stream after a sub-layer, and what is still to be added to it."""
        return (s, g) if self.model.pre else (_add_norm(s, g, LN)[1], None)

    def advance(self, parents: Tensor | None) -> None:
        """Let the rows continue their parents."""
        if parents is not None and self.rows is not None:
            self.rows.copy_(self.rows[parents])


class SsruSlots(TransformerSlots):
    """The slots of a Transformer whose decoder has SSRUs: c_t of L layers, (L, R, D), in fp32 at least."""

    def _allocate(self, W: Tensor, R: int, T: int) -> None:
        dtype = torch.float32 if W.dtype.itemsize < 4 else W.dtype
        self.cache = W.new_zeros(len(self.layers), R, W.shape[1], dtype=dtype)
        self.after = torch.zeros_like(self.cache)

    @property
    def nbytes(self) -> int:
        """How much memory the states take, with the source's."""
        return super().nbytes + self.after.nbytes

    def put(self, slots: Tensor, memory: Memory) -> None:
        """Begin new sentences in some slots: with states of 0."""
        rows = (slots[:, None] * self.K + torch.arange(self.K, device=slots.device)).flatten()
        self.cache.index_fill_(1, rows, 0.0)
        super().put(slots, memory)

    def _read(self, n: Tensor, t: Tensor, number: int) -> Tensor:
        inside, c = cast("Ssru", self.layers[number].inside), self.after[number]
        f, x = linear(n, inside.W.weight).to(c.dtype).chunk(2, dim=-1)
        torch.lerp(x, self.cache[number], torch.sigmoid(f + inside.b_f), out=c)
        return torch.relu(c).to(n.dtype)

    def advance(self, parents: Tensor | None) -> None:
        """Take the states after the step, of the rows' parents."""
        self.cache.copy_(self.after if parents is None else self.after.index_select(1, parents))
