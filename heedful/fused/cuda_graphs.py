"""Captured work: a CUDA graph for each shape of the inputs.

A small model's step is hundreds of kernels of a few microseconds each; launching them one by one takes longer than
running them. A CUDA graph launches them all at once. It replays the same kernels on the same memory, so inputs are
copied to where they were when it was captured. A graph takes memory as long as it is kept, so their number is limited;
work of further shapes runs without a graph. Training captures updates, and decoding a step over static shapes
(`heedful.decoding.slot_decoder`), which has no inputs: it reads and writes tensors that stay.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Protocol

import torch
from torch import Tensor

WARM = 2  # runs of a shape before it is captured, in which libraries choose their kernels
MOST = 256  # shapes that are captured at most; batches are padded to few
Shapes = tuple[torch.Size, ...]
CAPTURING = Lock()  # PyTorch captures one graph at a time in a process
STREAMS: dict[int, Any] = {}  # for captures, one for each device


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

    def __init__(
        self,
        work: Callable[..., None],
        pool: Any = None,  # noqa: ANN401  (an opaque handle)
        most: int = MOST,
        device: torch.device | None = None,
    ) -> None:
        self.work = work
        self.device = device  # None: the current one
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
        with CAPTURING, torch.cuda.device(self.device):
            graph = torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            # The default stream cannot be captured; and PyTorch's own for captures belongs to one device.
            current = torch.cuda.current_stream()
            own = STREAMS.setdefault(torch.cuda.current_device(), torch.cuda.Stream())  # type: ignore[no-untyped-call]
            stream = own if current == torch.cuda.default_stream() else current
            # Other threads, which prepare the next batches, may allocate memory meanwhile.
            with torch.cuda.graph(graph, pool=self.pool, stream=stream, capture_error_mode="thread_local"):
                self.work(*buffers)
        return graph, buffers

    def close(self) -> None:
        """Release the graphs and their memory."""
        self.graphs.clear()
        self.calls.clear()
