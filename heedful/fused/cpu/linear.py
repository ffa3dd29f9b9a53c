"""Packing the weights of a model for decoding on a CPU, and which library is to multiply them.

A step of decoding is products of one to a few hundred rows with large matrices. PyTorch computes them in fp32 with its
BLAS, on x86 MKL. On Intel's processors MKL is fast; on AMD's, oneDNN, which PyTorch has too, is more than twice as
fast from a few rows on (`benchmarks/products.py`). So both are measured once in a process. Values differ by rounding.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor, nn

FASTER = 1.25  # times as fast as BLAS: for less, oneDNN is not used
LARGE = 2**24  # weights that no cache holds: oneDNN reads them faster for a single row, too
DIVIDED = 2**20  # a matrix that oneDNN reads faster for a single row with several threads; BLAS uses one for it
TRIAL = (5, 256, 1024)  # rows, inputs and outputs of the product by which the libraries are compared
ROUNDS = 30  # of which the fastest counts: a busy machine delays most


class Packable(nn.Module):
    """A module that packs weights besides those of its linear layers."""

    @abstractmethod
    def pack(self, decoding: bool) -> None:
        """Keep a packed copy of them, or no longer."""


def pack_weights(model: nn.Module, decoding: bool = True) -> None:
    """Pack the matrices of a model for decoding, or lay them out as they were.

    BLAS multiplies one to a hundred rows faster, sometimes twice as fast, when a matrix lies in memory by its shorter
    side: by its inputs, W x being computed as xᵀ Wᵀ, unless it has more inputs than outputs. Shapes and values stay. A
    `Packable` module keeps copies in oneDNN's layout besides.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            W = module.weight.data
            by_inputs = decoding and len(W) >= W.shape[1]
            module.weight.data = W.t().contiguous().t() if by_inputs else W.contiguous()
    for module in model.modules():
        if isinstance(module, Packable):
            module.pack(decoding)


def onednn_rows(weights: Sequence[Tensor]) -> int:
    """Return from how many rows on oneDNN is the faster library for these weights, all of a step; 0 for never."""
    if any(W.dtype != torch.float32 or W.device.type != "cpu" for W in weights) or not onednn_is_faster():
        return 0
    return 1 if sum(W.numel() for W in weights) > LARGE else 2


def divides(W: Tensor, rows: int) -> bool:
    """Whether oneDNN also multiplies a single row by W where there are several threads; see `onednn_rows`."""
    return rows > 0 and W.numel() >= DIVIDED


_chosen: list[bool] = []  # by `using_onednn`


@contextmanager
def using_onednn(wanted: bool | None) -> Iterator[None]:
    """Choose the library for models that are packed meanwhile; None: the one that is measured to be faster."""
    before = list(_chosen)
    _chosen[:] = [] if wanted is None else [wanted and _works()]
    try:
        yield
    finally:
        _chosen[:] = before


def onednn_is_faster() -> bool:
    """Whether oneDNN computes products: as chosen, or else if it is clearly faster on this machine than BLAS."""
    return _chosen[0] if _chosen else _measured()


@cache
def _works() -> bool:
    """Whether oneDNN is there, and built for this processor."""
    if not all(hasattr(torch.ops.mkldnn, name) for name in ("_linear_pointwise", "_reorder_linear_weight")):
        return False
    try:
        with torch.inference_mode():
            torch.ops.mkldnn._linear_pointwise(torch.ones(2, 16), reorder(torch.ones(16, 16)), None, "none", (), "")
    except RuntimeError:
        return False
    return True


@cache
def _measured() -> bool:
    """Whether oneDNN is clearly faster than PyTorch's BLAS; measured once, in 4 ms, with one thread.

    With several, threads would wait for those that other programs have interrupted, and the result would be chance.
    """
    if not _works():
        return False
    rows, inputs, outputs = TRIAL
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            x, b, W = torch.ones(rows, inputs), torch.ones(outputs), torch.ones(outputs, inputs)
            packed = reorder(W)
            blas, onednn = _fastest(
                lambda: torch.addmm(b, x, W.t()),
                lambda: torch.ops.mkldnn._linear_pointwise(x, packed, b, "none", (), ""),
            )
    finally:
        torch.set_num_threads(threads)
    return blas > FASTER * onednn


def _fastest(*works: Callable[[], object]) -> list[float]:
    """Return the shortest time of each piece of work, in turns, because the load of the machine changes."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for work, seconds in zip(works, times, strict=True):
            begin = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - begin)
    return [min(seconds) for seconds in times]


def reorder(W: Tensor) -> Tensor:
    """Return a matrix in oneDNN's layout.  (out, in)."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(W.contiguous())
    return packed
