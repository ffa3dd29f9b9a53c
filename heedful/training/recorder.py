"""Recording what a step does on a GPU, once for each shape, and replaying it.

A small model's step is hundreds of kernels that each take microseconds; starting them one by one takes longer than
running them. A CUDA graph starts them all at once. It replays the same kernels on the same memory, so inputs are copied
to where they were when it was recorded. A graph takes memory as long as it is kept, so that there is a limit to them:
what comes in further shapes is worked on as it is, step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

__all__ = ["Graph", "Recorder"]

WARM = 2  # times that a shape is worked on before it is recorded: libraries choose their kernels then
MOST = 256  # shapes that are recorded; batches are padded to few
Shapes = tuple[torch.Size, ...]


class Graph(Protocol):
    """What can be played again."""

    def replay(self) -> None:
        """Do once more what was recorded."""


class Recorder:
    """Calls `work` with tensors of some shapes; from the third time that shapes come, replays what it did then.

    `work` must not return anything, nor ask the device for a value: what it finds it adds to tensors that stay. The
    first `most` shapes that come three times are recorded, and stay: if one made way for another, shapes that come in
    turns would be recorded again and again.
    """

    def __init__(self, work: Callable[..., None], pool: Any = None, most: int = MOST) -> None:  # noqa: ANN401  (an opaque handle)
        self.work = work
        self.pool = pool or torch.cuda.graph_pool_handle()
        self.most = most
        self.seen: dict[Shapes, int] = {}
        self.recorded: dict[Shapes, tuple[Graph, list[Tensor]]] = {}

    def __call__(self, *inputs: Tensor) -> None:
        """Do the work on some tensors."""
        shapes = tuple(t.shape for t in inputs)
        found = self.recorded.get(shapes)
        if found is None:
            if not self._due(shapes):
                self.work(*inputs)
                return
            found = self.recorded[shapes] = self._record(inputs)
        graph, places = found
        for place, given in zip(places, inputs, strict=True):
            place.copy_(given, non_blocking=True)
        graph.replay()

    def _due(self, shapes: Shapes) -> bool:
        """Whether shapes that are not recorded have come often enough, and there is room for them."""
        if len(self.recorded) >= self.most:
            self.seen.clear()  # nobody will ask again
            return False
        times = self.seen.pop(shapes, 0)
        if times < WARM:
            self.seen[shapes] = times + 1
        return times >= WARM

    def _record(self, inputs: tuple[Tensor, ...]) -> tuple[Graph, list[Tensor]]:
        places = [t.clone() for t in inputs]
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        # Other threads, which make the next batches, may ask the driver for memory meanwhile.
        stream = torch.cuda.current_stream()
        with torch.cuda.graph(graph, pool=self.pool, stream=stream, capture_error_mode="thread_local"):
            self.work(*places)
        return graph, places

    def close(self) -> None:
        """Let go of what was recorded, and of its memory."""
        self.recorded.clear()
        self.seen.clear()
