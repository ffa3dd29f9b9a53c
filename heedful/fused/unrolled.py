"""A recurrent encoder and a recurrent decoder with attention, each one autograd function over all steps, for training.

They compute the same as the loops of `heedful.models.rnn`, several times faster. The steps are in
`heedful.fused.cpu.recurrence`; on a GPU they are kernels (`heedful.fused.triton.unrolled`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from heedful.fused.cpu.recurrence import LAYERS, AdditiveSteps, AttentionSteps, DotSteps, Feed, Layer, Mix
from heedful.fused.triton.launch import no_compile
from heedful.fused.triton.recurrent_attention import attendable
from heedful.fused.triton.recurrent_cells import steppable
from heedful.fused.triton.unrolled import (
    KERNEL_LAYERS,
    JoinedAdditive,
    JoinedMix,
    JoinedProducts,
    KernelAdditive,
    KernelDot,
)

Tensors = dict[str, Tensor]
Part = tuple[Callable[[int], None], Callable[[int], None]]  # forward(t) and backward(t) of a part of a step


@dataclass(frozen=True)
class DecoderSpec:
    """A decoder's cell and number of layers, and its attention.

    `query` is the state that queries: "before" is s_{t-1}, "after" s_t, "" means no attention. `scale` is the factor of
    the dot product; the additive score has none.
    """

    cell: str
    layers: int
    query: str = ""
    scale: float = 1.0

    @property
    def states(self) -> tuple[str, ...]:
        """The names of a layer's states."""
        return ("s", "m") if self.cell == "lstm" else ("s",)


class DecoderOutput(NamedTuple):
    """s (T, B, D); c (T, B, E), α (T, B, S) and a (T, B, D), or None; and the last states of the layers."""

    s: Tensor
    c: Tensor | None
    weights: Tensor | None
    a: Tensor | None
    last: tuple[tuple[Tensor, ...], ...]

    @property
    def known(self) -> Tensor:
        """[s_t; c_t], or s_t without attention, batch first: (B, T, …)."""
        return (self.s if self.c is None else torch.cat([self.s, self.c], dim=-1)).transpose(0, 1)

    @property
    def step_weights(self) -> Tensor | None:
        """The weights as `step` returns them, of one layer with one head: (B, 1, 1, T, S)."""
        return None if self.weights is None else self.weights.transpose(0, 1)[:, None, None]


def attention_by_kernels(keys: Tensor) -> bool:
    """Whether kernels compute attention to these keys.  keys (B, S, A)."""
    return steppable(keys) and attendable(keys.shape[1])


def layer_type(cell: str, U: Tensor) -> type[Layer]:
    """Return the layer of a cell for these weights.  U (N, gates·D, D)."""
    return KERNEL_LAYERS[cell] if cell in KERNEL_LAYERS and steppable(U) else LAYERS[cell]


def joinable(spec: DecoderSpec, tensors: Tensors) -> bool:
    """Whether kernels compute the steps, and other products than the layer's have the querying state as a factor."""
    others = "W_q" in tensors or "a" in tensors
    return bool(spec.query) and others and steppable(tensors["U0"]) and attention_by_kernels(tensors["keys"])


def _own_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Compute in the weights' precision, also under autocast: the buffers that are added to must not be rounded."""
    available = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if available else nullcontext()


@no_compile
def unrolled_decoder(spec: DecoderSpec, tensors: Tensors) -> DecoderOutput:
    """Decode T steps. `tensors` may have these names, with l for the layers from 0 on and PyTorch's order of gates:

    x (T, B, K): the input of the lowest layer that is known for all steps; W0, b_W0: its weights;
    U{l}, b_U{l}; from the second layer on also W{l}, b_W{l}, and drop{l} (T, B, D), which multiplies the state below;
    s{l} and, for the LSTM, m{l} (B, D): the first states;
    keys (B, S, A), values (B, S, E), keep (B, S); for the additive score W_q (A, D) and v (A,);
    W_a (D, D+E), b_a (D,), a (B, D): a_t = tanh(W_a[s_t; c_t] + b_a), and a_0;
    W_fed: the weights of the lowest layer for a_{t-1}, if there is one, else for c_t.
    """
    names, dtype = tuple(tensors), tensors["U0"].dtype
    with _own_precision(tensors["x"].device), torch.cuda.device_of(tensors["x"]):  # type: ignore[no-untyped-call]
        values = [tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors.values()]
        outputs = list(_Decode.apply(spec, names, *values))  # type: ignore[no-untyped-call]
    s = outputs.pop(0)
    c, weights = (outputs.pop(0), outputs.pop(0)) if spec.query else (None, None)
    a = outputs.pop(0) if "a" in tensors else None
    n = len(spec.states)
    last = tuple(tuple(outputs[n * layer : n * layer + n]) for layer in range(spec.layers))
    return DecoderOutput(s, c, weights, a, last)


class UnrolledDecoder:
    """A decoder over T steps, made from its tensors and, for the backward pass, the buffers saved by the forward pass.

    A step is a list of parts, each with forward and backward; the backward pass runs them in reverse.
    """

    def __init__(self, spec: DecoderSpec, tensors: Tensors, saved: list[Tensor] | None = None) -> None:
        self.spec, self.tensors = spec, tensors
        self.T, self.B = tensors["x"].shape[:2]
        self.joined = self._joined() if joinable(spec, tensors) else None
        buffers = None if saved is None else list(saved)
        self.layers = [self._layer(number, buffers) for number in range(spec.layers)]
        self.top = self.layers[-1]
        self.W = [self.top.arrange(tensors[f"W{number}"][None]) for number in range(spec.layers)]
        self.attention = self._attention(buffers) if spec.query else None
        self.mix = self._mix(buffers) if "a" in tensors else None
        self.below = [self._below(number) for number in range(1, spec.layers)]
        self.feed = self._feed() if "W_fed" in tensors else None

    def _joined(self) -> JoinedProducts:
        U, late = self.tensors[f"U{self.spec.layers - 1}"], self.spec.query == "after"
        others = {"q": self.tensors["W_q"]} if "W_q" in self.tensors else {}
        others |= {"a": self.tensors["W_a"][:, : U.shape[1]]} if "a" in self.tensors else {}
        return JoinedProducts(layer_type(self.spec.cell, U), U, others, late, (self.T, self.B))

    def _gates(self, number: int) -> Tensor | None:
        """Return the buffer of `JoinedProducts` for a layer's gates, or for their gradients; None if it has none."""
        return self.joined.gates if self.joined is not None and number == self.spec.layers - 1 else None

    def _layer(self, number: int, buffers: list[Tensor] | None) -> Layer:
        tensors, spec = self.tensors, self.spec
        U = tensors[f"U{number}"][None]
        kind = layer_type(spec.cell, U)
        if buffers is not None:
            return kind(U, *[buffers.pop(0) for _ in range(1 + len(spec.states))])
        bias = (tensors[f"b_W{number}"][None], tensors[f"b_U{number}"][None])
        first = tuple(tensors[f"{side}{number}"][None] for side in spec.states)
        return kind.allocate(self.T, U, bias, first, self._gates(number))

    def _querying(self, states: Tensor) -> Tensor:
        """Return those of the top layer's states, or of their gradients, that query.  (1, T+1, B, D) -> (T, B, D)."""
        return states[0, :-1] if self.spec.query == "before" else states[0, 1:]

    def _attention(self, buffers: list[Tensor] | None) -> AttentionSteps:
        keys, values = self.tensors["keys"], self.tensors["values"]
        memory = (keys, values, self.tensors["keep"])
        if buffers is None:
            saved = AttentionSteps.allocate(self.T, keys, values, None if self.joined is None else self.joined.q)
        else:
            saved = tuple(buffers.pop(0) for _ in range(3))
        s, kernels = self._querying(self.top.s), attention_by_kernels(keys)
        if "v" not in self.tensors:
            return (KernelDot if kernels else DotSteps)(memory, s, saved, self.spec.scale)
        kind = JoinedAdditive if self.joined is not None else KernelAdditive if kernels else AdditiveSteps
        return kind(memory, s, saved, (self.tensors["W_q"], self.tensors["v"]))

    def _mixed(self) -> Tensor:
        """Return a buffer for the attentional states, or for their gradients: (T+1, B, D)."""
        if self.joined is not None:
            return self.joined.others["a"]
        return self.tensors["a"].new_empty(self.T + 1, *self.tensors["a"].shape)

    def _mix(self, buffers: list[Tensor] | None) -> Mix:
        a = self._mixed() if buffers is None else buffers.pop(0)
        if buffers is None:
            a[0] = self.tensors["a"]
        assert self.attention is not None
        kind = Mix if self.joined is None else JoinedMix
        return kind(a, self.tensors["W_a"], self.tensors["b_a"], self.top.s[0, 1:], self.attention.c)

    def _below(self, number: int) -> Feed:
        lower, drop = self.layers[number - 1], self.tensors.get(f"drop{number}")
        return Feed(self.layers[number], self.W[number], lower.s[0, 1:], drop)

    def _feed(self) -> Feed:
        W = self.top.arrange(self.tensors["W_fed"][None])
        if self.mix is not None:
            return Feed(self.layers[0], W, self.mix.a[:-1])
        assert self.attention is not None
        return Feed(self.layers[0], W, self.attention.c)

    def _step(self) -> list[Part]:
        """Return the parts of a step, in the order of the forward pass."""
        parts: list[Part] = []
        joined, attention = self.joined, self.attention
        if joined is not None:
            parts.append((joined.forward_before, joined.backward_before))
        if attention is not None and self.spec.query == "before":
            parts.append((attention.forward, attention.backward))
        if self.feed is not None:
            parts.append((self.feed.forward, self.feed.backward))
        for number, layer in enumerate(self.layers):
            if number:
                parts.append((self.below[number - 1].forward, self.below[number - 1].backward))
            if joined is not None and layer is self.top:
                parts += [(layer.gate, layer.gate_backward), (joined.forward_after, joined.backward_after)]
            else:
                parts.append((layer.forward, layer.backward))
        if attention is not None and self.spec.query == "after":
            parts.append((attention.forward, attention.backward))
            if self.mix is not None:
                parts.append((self.mix.forward, self.mix.backward))
        return parts

    @property
    def saved(self) -> list[Tensor]:
        """The buffers for the backward pass."""
        of_layers = [tensor for layer in self.layers for tensor in layer.saved[1:]]
        of_attention = () if self.attention is None else self.attention.saved
        return [*of_layers, *of_attention, *(() if self.mix is None else (self.mix.a,))]

    def forward(self) -> tuple[Tensor, ...]:
        """Run all steps. Return s; c, α and a if there are any; then the last states, layer by layer."""
        lowest = self.layers[0]
        lowest.project(self.tensors["x"][None], self.W[0])
        for upper in self.layers[1:]:
            upper.gates.copy_(upper.bias)
        if self.joined is not None:
            lowest.add_bias(slice(None))
            lowest.bias_missing = False
            self.joined.begin_forward(self.top.s[0], None if self.mix is None else self.tensors["b_a"])
        parts = [forward for forward, _ in self._step()]
        for t in range(self.T):
            for forward in parts:
                forward(t)
        outputs = [self.top.s[0, 1:]]
        outputs += [] if self.attention is None else [self.attention.c, self.attention.weights]
        outputs += [] if self.mix is None else [self.mix.a[1:]]
        return *outputs, *(side[0, -1].clone() for layer in self.layers for side in layer.saved[2:])

    def backward(self, gradients: list[Tensor | None]) -> Tensors:
        """Return the gradients of the tensors from those of the outputs."""
        sides = [[torch.zeros_like(side) for side in layer.saved[2:]] for layer in self.layers]
        ds = sides[-1][0]
        _add(ds[0, 1:], gradients.pop(0))
        if self.attention is not None:
            dc = torch.zeros_like(self.attention.c)
            _add(dc, gradients.pop(0))
            dq = None if self.joined is None else self.joined.q
            self.attention.begin_backward(self._querying(ds), dc, gradients.pop(0), dq)
            if self.mix is not None:
                da = self._mixed().zero_()
                _add(da[1:], gradients.pop(0))
                self.mix.begin_backward(da, ds[0, 1:], dc)
            if self.feed is not None:
                self.feed.begin_backward(dc if self.mix is None else self.mix.da[:-1])
        for number, (layer, own) in enumerate(zip(self.layers, sides, strict=True)):
            for side in own:
                _add(side[0, -1], gradients.pop(0))
            layer.begin_backward(own[0], own[1] if len(own) == 2 else None, self._gates(number))
        for lower, feed in zip(self.layers[:-1], self.below, strict=True):
            feed.begin_backward(lower.ds[0, 1:])
        if self.joined is not None:
            self.joined.begin_backward(ds[0])
        parts = [backward for _, backward in reversed(self._step())]
        for t in reversed(range(self.T)):
            for backward in parts:
                backward(t)
        return self._gradients()

    def _gradients(self) -> Tensors:
        """Return the gradients of the tensors, computed for all steps together after the loop."""
        lowest, gradients = self.layers[0], Tensors()
        gradients["x"], gradients["W0"] = lowest.dx(self.W[0])[0], lowest.dW(self.tensors["x"][None])[0]
        gradients |= {f"W{number}": feed.dW() for number, feed in enumerate(self.below, 1)}
        for number, layer in enumerate(self.layers):
            gradients[f"U{number}"] = layer.dU()[0]
            gradients[f"b_W{number}"], gradients[f"b_U{number}"] = (b[0] for b in layer.db())
            for name, side in zip(self.spec.states, (layer.ds, layer.dm), strict=False):
                gradients[f"{name}{number}"] = side[0, 0]  # type: ignore[index]
        if self.attention is not None:
            gradients |= {"keys": self.attention.d_keys(), "values": self.attention.d_values()}
            gradients |= self.attention.d_weights_of_score()
        gradients |= {} if self.mix is None else self.mix.gradients()
        gradients |= {} if self.feed is None else {"W_fed": self.feed.dW()}
        return gradients


def _add(into: Tensor, gradient: Tensor | None) -> None:
    if gradient is not None:
        into.add_(gradient)


class _Context(FunctionCtx):
    """The context of the autograd functions below."""

    saved_tensors: tuple[Tensor, ...]
    spec: DecoderSpec
    names: tuple[str, ...]
    cell: str


class _Decode(torch.autograd.Function):
    """The autograd function of `unrolled_decoder`."""

    @staticmethod
    def forward(ctx: _Context, spec: DecoderSpec, names: tuple[str, ...], *tensors: Tensor) -> tuple[Tensor, ...]:
        decoder = UnrolledDecoder(spec, dict(zip(names, tensors, strict=True)))
        outputs = decoder.forward()
        ctx.spec, ctx.names = spec, names
        ctx.save_for_backward(*tensors, *decoder.saved)
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        n = len(ctx.names)
        tensors = dict(zip(ctx.names, ctx.saved_tensors[:n], strict=True))
        with _own_precision(tensors["x"].device):
            results = UnrolledDecoder(ctx.spec, tensors, list(ctx.saved_tensors[n:])).backward(list(gradients))
        return None, None, *(results.get(name) for name in ctx.names)


@no_compile
def unrolled_encoder(
    cell: str, x: Tensor, weights: tuple[Tensor, ...], lengths: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Encode sentences in N directions.  x (N, S, B, K), lengths (B,) -> s (N, S, B, D), last states, each (N, B, D).

    `weights` are PyTorch's W (N, gates·D, K), U (N, gates·D, D), b_W and b_U (N, gates·D). The last states are those
    at the end of each sentence; for the LSTM the cell state follows.

    Padding is on the right. For the direction from right to left, each sentence is reversed within its length
    (`reverse_sentences`), so that padding always comes last; its outputs are not used and get no gradient. Nothing is
    packed, and nothing synchronises with the device.
    """
    with _own_precision(x.device), torch.cuda.device_of(x):  # type: ignore[no-untyped-call]
        s, *last = _Encode.apply(cell, x.to(weights[0].dtype), *weights, lengths)  # type: ignore[no-untyped-call]
    return s, tuple(last)


class _Encode(torch.autograd.Function):
    """The autograd function of `unrolled_encoder`."""

    @staticmethod
    def forward(
        ctx: _Context, cell: str, x: Tensor, W: Tensor, U: Tensor, b_W: Tensor, b_U: Tensor, lengths: Tensor
    ) -> tuple[Tensor, ...]:
        N, S, B, _ = x.shape
        zero = x.new_zeros(N, B, U.shape[-1])
        layer = layer_type(cell, U).allocate(S, U, (b_W, b_U), (zero, zero) if cell == "lstm" else (zero,))
        W = layer.arrange(W)
        layer.project(x, W)
        for t in range(S):
            layer.forward(t)
        ends = lengths * B + torch.arange(B, device=x.device)
        ctx.cell = cell
        ctx.save_for_backward(x, W, ends, *layer.saved)
        ctx.set_materialize_grads(False)
        sides = (layer.s,) if layer.m is None else (layer.s, layer.m)
        return layer.s[:, 1:], *(side.flatten(1, 2).index_select(1, ends) for side in sides)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, d: Tensor | None, *d_last: Tensor | None) -> tuple[Tensor | None, ...]:
        x, W, ends, U, gates, *states = ctx.saved_tensors
        with _own_precision(U.device):
            layer = layer_type(ctx.cell, U)(U, gates, *states)
            sides = [torch.zeros_like(side) for side in states]
            if d is not None:
                sides[0][:, 1:] = d
            for side, gradient in zip(sides, d_last, strict=True):
                if gradient is not None:
                    side.flatten(1, 2).index_add_(1, ends, gradient)
            layer.begin_backward(*sides)
            for t in reversed(range(gates.shape[1])):
                layer.backward(t)
            return None, layer.dx(W), layer.dW(x), layer.dU(), *layer.db(), None


def reverse_sentences(x: Tensor, lengths: Tensor) -> Tensor:
    """Reverse each sentence within its length; padding stays.  x (S, B, W), lengths (B,) -> (S, B, W)."""
    S, B, _ = x.shape
    j = torch.arange(S, device=x.device)[:, None]
    position = torch.where(j < lengths, lengths - 1 - j, j)
    rows = position * B + torch.arange(B, device=x.device)
    return _Reorder.apply(x.flatten(0, 1), rows.flatten()).view(x.shape)  # type: ignore[no-untyped-call, no-any-return]


class _Reorder(torch.autograd.Function):
    """Reorder rows by a permutation that is its own inverse, so that the gradient is the same operation."""

    @staticmethod
    def forward(ctx: _Context, x: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx: _Context, d: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        return _Reorder.apply(d, rows), None  # type: ignore[no-untyped-call]
