"""Captured training steps: a CUDA graph for each shape of the inputs, and weights rounded to bf16 together.

A small model's step is hundreds of kernels of a few microseconds each; launching them one by one takes longer than
running them. A CUDA graph launches them all at once. It replays the same kernels on the same memory, so inputs are
copied to where they were when it was captured. A graph takes memory as long as it is kept, so their number is limited;
steps of further shapes run without a graph.

Autocast rounds each weight by a kernel of its own, and takes each gradient back to fp32 by another: 160 in a step of a
Transformer with 4 + 4 layers, of a microsecond or two each. `Bf16Weights` does both for all weights together, with the
same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

WARM = 2  # runs of a shape before it is captured, in which libraries choose their kernels
MOST = 256  # shapes that are captured at most; batches are padded to few
Shapes = tuple[torch.Size, ...]


class Graph(Protocol):
    """A captured graph."""

    def replay(self) -> None:
        """Run the captured kernels again."""


class GraphedFunction:
    """Calls `work` with tensors; from the third call with the same shapes on, replays a captured graph of it.

    `work` must not return anything, nor read a value from the device: it adds its results to tensors that stay. The
    first `most` shapes that come three times are captured and kept: if one replaced another, shapes that alternate
    would be captured again and again.
    """

    def __init__(self, work: Callable[..., None], pool: Any = None, most: int = MOST) -> None:  # noqa: ANN401  (an opaque handle)
        self.work = work
        self.pool = pool or torch.cuda.graph_pool_handle()
        self.most = most
        self.calls: dict[Shapes, int] = {}
        self.graphs: dict[Shapes, tuple[Graph, list[Tensor]]] = {}

    def __call__(self, *inputs: Tensor) -> None:
        """Run the function, or its graph."""
        shapes = tuple(t.shape for t in inputs)
        captured = self.graphs.get(shapes)
        if captured is None:
            if not self._due(shapes):
                self.work(*inputs)
                return
            captured = self.graphs[shapes] = self._capture(inputs)
        graph, buffers = captured
        for buffer, value in zip(buffers, inputs, strict=True):
            buffer.copy_(value, non_blocking=True)
        graph.replay()

    def _due(self, shapes: Shapes) -> bool:
        """Whether shapes without a graph were called often enough, and another graph is allowed."""
        if len(self.graphs) >= self.most:
            self.calls.clear()  # not needed any more
            return False
        times = self.calls.pop(shapes, 0)
        if times < WARM:
            self.calls[shapes] = times + 1
        return times >= WARM

    def _capture(self, inputs: tuple[Tensor, ...]) -> tuple[Graph, list[Tensor]]:
        buffers = [t.clone() for t in inputs]
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        # Other threads, which prepare the next batches, may allocate memory meanwhile.
        stream = torch.cuda.current_stream()
        with torch.cuda.graph(graph, pool=self.pool, stream=stream, capture_error_mode="thread_local"):
            self.work(*buffers)
        return graph, buffers

    def close(self) -> None:
        """Release the graphs and their memory."""
        self.graphs.clear()
        self.calls.clear()


class Bf16Weights:
    """A module that computes a loss, called with bf16 copies in place of some of its weights.

    `weights` are those that the model declares (`bf16_weights()`): a Transformer's; recurrent models compute in fp32.
    """

    def __init__(self, module: nn.Module, weights: Sequence[Tensor]) -> None:
        self.module, self.weights = module, list(weights)
        self.copies = [torch.empty_like(w, dtype=torch.bfloat16, requires_grad=True) for w in self.weights]
        names = {id(weight): name for name, weight in module.named_parameters()}
        self.named = {names[id(weight)]: copy for weight, copy in zip(self.weights, self.copies, strict=True)}

    def __call__(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        """Round the weights as they are now, and call the module; under autocast, which rounds the rest."""
        if not self.copies:
            return self.module(*inputs)  # type: ignore[no-any-return]
        with torch.no_grad():
            torch._foreach_copy_(self.copies, self.weights)
        for copy in self.copies:
            copy.grad = None  # of a step that was interrupted
        return torch.func.functional_call(self.module, self.named, inputs)  # type: ignore[no-any-return]

    def set_gradients(self) -> None:
        """Set the weights' gradients to those of their copies."""
        pairs = [(w, c.grad) for w, c in zip(self.weights, self.copies, strict=True) if c.grad is not None]
        if not pairs:
            return
        gradients = [torch.empty_like(weight) for weight, _ in pairs]
        torch._foreach_copy_(gradients, [gradient for _, gradient in pairs])
        for (weight, _), gradient in zip(pairs, gradients, strict=True):
            weight.grad = gradient
        for copy in self.copies:
            copy.grad = None  # a captured CUDA graph may reuse its memory
