"""How long work takes on a GPU, and how much memory: recorded as CUDA graphs or called, several ways in turns."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

import torch

__all__ = ["Work", "medians", "peak", "record"]

Work = Callable[[], object]
WARM = 3  # times that work is done before it is recorded: libraries choose their kernels then
MEBI = 2**20


def record(work: Work, times: int = 1) -> torch.cuda.CUDAGraph:
    """Return a CUDA graph that does the work, so many times over."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            work()
    return graph


def medians(runs: Mapping[str, Work], rounds: int) -> dict[str, float]:
    """Return the median milliseconds of each, by the GPU's clock; in every round all of them run once, in turns."""
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            begin.record()
            run()
            end.record()
            torch.cuda.synchronize()
            spent[name].append(begin.elapsed_time(end))
    return {name: statistics.median(times) for name, times in spent.items()}


def peak(work: Work) -> tuple[float, object]:
    """Return how many MiB work holds at most beyond what lies there before, and its result; it warms up first."""
    work()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / MEBI, result
