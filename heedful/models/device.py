"""Where to compute: the device, its precision, how many threads, and errors when its memory is full.

The number of threads on the CPU is measured, since on a busy machine more threads can be slower. Each parallel
operation ends when its last thread is done. Where other programs use the cores, that thread may wait for a core for
milliseconds, thousands of times a step. `import heedful` also lets waiting threads sleep instead of spin
(`heedful/__init__.py`). On two busy cores, two spinning threads trained at a tenth of the speed of one and decoded at a
hundredth; two sleeping ones at about the speed of one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from heedful.errors import ConfigError, DeviceMemoryError, choose

FASTER = 1.1  # times as fast as fewer threads: for less, fewer threads are used
HOPELESS = 4.0  # times as slow as one thread in the quick trial: not tried on the whole work
ROUNDS = 3
LONGEST = 10.0  # seconds after which no further round begins


def pick(name: str) -> torch.device:
    """Return the device of a name; `auto` takes CUDA, then Apple's MPS, then the CPU."""
    choose("device", name, ("auto", "cpu", "cuda", "mps"))
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    usable = [device for device, there in available.items() if there]
    if name == "auto":
        return torch.device(usable[0])
    if name not in usable:
        raise ConfigError(f"device '{name}' is not available; choose one of auto, {', '.join(sorted(usable))}")
    return torch.device(name)


@contextmanager
def fast_products(device: torch.device) -> Iterator[None]:
    """Let a GPU round the factors of products in fp32 to 11 bits (TF32) for a while, as training allows."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there is no memory left."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    # The CPU's allocator and MPS have no error class of their own.
    message = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in message or "out of memory" in message)


@contextmanager
def memory_guard(what: str, remedy: str) -> Iterator[None]:
    """Raise DeviceMemoryError, with what was being done and a remedy, when memory runs out."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise DeviceMemoryError(f"{what}: the device ran out of memory; {remedy}") from None
    except RuntimeError as error:
        if out_of_memory(error):
            raise DeviceMemoryError(f"{what}: out of memory; {remedy}") from None
        raise


class ThreadTimes(NamedTuple):
    """The fastest number of threads, and the mean seconds that the work took with each number that was tried."""

    threads: int
    seconds: dict[int, float]


def may_choose() -> bool:
    """Whether the number of threads is open: more than one is possible, and the environment does not set it."""
    return torch.get_num_threads() > 1 and not any(map(os.environ.get, ("OMP_NUM_THREADS", "MKL_NUM_THREADS")))


@contextmanager
def using_threads(threads: int) -> Iterator[None]:
    """Let PyTorch use some number of threads for a while; 0 leaves it as it is."""
    before = torch.get_num_threads()
    if threads and threads != before:
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


def numbers_to_try() -> list[int]:
    """Return 1, 2, 4, … and the number of threads that PyTorch uses now."""
    most = torch.get_num_threads()
    return [*(2**power for power in range(most.bit_length()) if 2**power < most), most]


def fastest_threads(
    work: Callable[[], object], quick: Callable[[], object] | None = None, rounds: int = ROUNDS
) -> ThreadTimes:
    """Return the number of threads with which `work` is fastest: 1, 2, 4, … up to what PyTorch uses now.

    Each number is compared with the best one so far, in turns, because the load of the machine changes. The
    first that is not clearly faster ends the search. `quick` is a small part of the work; a number of threads that is
    far slower there is not tried on the whole of it.
    """
    numbers = numbers_to_try()
    times: dict[int, list[float]] = {number: [] for number in numbers}
    begun = time.perf_counter()
    work()  # the first time memory is allocated and kernels are prepared
    best = numbers.pop(0)
    for number in numbers:
        if quick is not None and _seconds(quick, number) > HOPELESS * _seconds(quick, 1):
            break
        pair: dict[int, list[float]] = {best: [], number: []}
        for done in range(rounds):
            if done and time.perf_counter() - begun > LONGEST:
                break
            for one, seconds in pair.items():
                seconds.append(_seconds(work, one))
        for one, seconds in pair.items():
            times[one] += seconds
        if sum(pair[number]) * FASTER > sum(pair[best]):
            break
        best = number
    return ThreadTimes(best, {number: sum(each) / len(each) for number, each in times.items() if each})


def _seconds(work: Callable[[], object], threads: int) -> float:
    with using_threads(threads):
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin
