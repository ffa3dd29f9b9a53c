"""How many threads PyTorch should use on the CPU: measured, since on a busy machine more threads can be slower.

Each parallel operation ends when its last thread is done. Where other programs use the cores, that thread may wait for
a core for milliseconds, thousands of times a step. So the number of threads is found with a clock, on the work itself.

`import heedful` also lets waiting threads sleep instead of spin (see `heedful/__init__.py`). On two busy cores, two
spinning threads trained at a tenth of the speed of one and decoded at a hundredth; two sleeping ones at about
the speed of one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

__all__ = ["ThreadTimes", "fastest_threads", "may_choose", "numbers_to_try", "using_threads"]

FASTER = 1.1  # times as fast as fewer threads: for less, the cores are left to others
HOPELESS = 4.0  # times as slow as one thread in the quick trial: not tried on the whole work
ROUNDS = 3
LONGEST = 10.0  # seconds after which no further round begins


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
