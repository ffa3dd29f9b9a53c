"""Where to compute: the device, its precision, how many threads, and errors when its memory is full.

The number of threads on the CPU is measured, since on a busy machine more threads can be slower. Each parallel
operation ends when its last thread is done. Where other programs use the cores, that thread may wait for a core for
milliseconds, thousands of times a step. `import heedful` also lets waiting threads sleep instead of spin
(`heedful/__init__.py`). On two busy cores, two spinning threads trained at a tenth of the speed of one and decoded at a
hundredth; two sleeping ones at about the speed of one.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import torch

from heedful.errors import ConfigError, DeviceMemoryError, DiskError, ModelError, choose
from heedful.files import cache_folder, make_folder, parse_json, read_bytes, write_whole

__all__ = [
    "ThreadTimes",
    "check_bf16",
    "fast_products",
    "faster_in_bf16",
    "fastest_threads",
    "may_choose",
    "memory_guard",
    "numbers_to_try",
    "out_of_memory",
    "pick",
    "using_threads",
]

FASTER = 1.1  # times as fast as fewer threads: for less, the cores are left to others
HOPELESS = 4.0  # times as slow as one thread in the quick trial: not tried on the whole work
ROUNDS = 3
LONGEST = 10.0  # seconds after which no further round begins

TRIAL = """
import time, torch
def best(kind):
    a = torch.ones(2048, 256, dtype=kind), torch.ones(256, 1024, dtype=kind)
    times = []
    for _ in range(20):
        begin = time.perf_counter()
        a[0] @ a[1]
        times.append(time.perf_counter() - begin)
    return min(times)
print(best(torch.float32) / best(torch.bfloat16))
"""


def pick(name: str) -> torch.device:
    """Return the device of a name; `auto` takes CUDA, then Apple's MPS, then the CPU."""
    choose("device", name, ("auto", "cpu", "cuda", "mps"))
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device, usable in there.items() if usable)
    if not there[name]:
        usable = ", ".join(sorted(device for device, found in there.items() if found))
        raise ConfigError(f"device '{name}' is not available here; choose one of auto, {usable}")
    return torch.device(name)


def check_bf16(device: torch.device) -> None:
    """Raise ConfigError if products in bf16 crash on this CPU.

    Some virtual machines report matrix instructions that programs cannot use, and the process is killed. So they are
    tried in another process first.
    """
    if device.type != "cpu":
        return
    status, _ = _try_bf16()
    if status:
        raise ConfigError(
            f"products in bf16 fail on this CPU (exit status {status}); set training.precision=fp32, or the "
            "environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 to avoid its matrix instructions"
        )


def faster_in_bf16(device: torch.device) -> bool:
    """Whether products in bf16 pay: on GPUs that have them, and on CPUs where a trial survives and is much faster."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    if device.type != "cpu" or not _has_matrix_bf16():
        return False
    status, ratio = _try_bf16()
    return status == 0 and ratio > 1.5


def _has_matrix_bf16() -> bool:
    """Whether the CPU says that it has products in bf16; if not, they are slow, and not worth a trial."""
    announced = torch.backends.cpu.get_cpu_capability() in ("AVX512", "SVE256")
    return announced and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@cache
def _try_bf16() -> tuple[int, float]:
    """Return another process's exit status after products in bf16, and how much faster they were than in fp32.

    It takes seconds, so the answer is kept, for this processor and this PyTorch. It comes from a clock: of several
    processes that try at the same time, all go by the one that is done first.
    """
    words = (_processor(), torch.__version__, os.environ.get("ONEDNN_MAX_CPU_ISA", ""))
    known = cache_folder() / f"bf16-{blake2b(repr(words).encode(), digest_size=8).hexdigest()}.json"
    if (told := _told(known)) is not None:
        return told
    done = subprocess.run([sys.executable, "-c", TRIAL], capture_output=True, check=False, text=True)
    found = done.returncode, float(done.stdout or 0.0)
    if (told := _told(known)) is not None:
        return told
    with suppress(DiskError):
        make_folder(known.parent)
        write_whole(known, json.dumps(found).encode())
    return found


def _told(known: Path) -> tuple[int, float] | None:
    """Return what an earlier trial found, if there was one."""
    try:
        status, ratio = parse_json(read_bytes(known, 1000, "what a trial found"), str(known))
        return int(status), float(ratio)
    except (OSError, ValueError, TypeError, OverflowError, ModelError):
        return None


def _processor() -> str:
    """Return the name of the processor, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    # Asked only where it is needed: to find out, Python may start a program.
    return next((line for line in lines if line.startswith("model name")), None) or platform.processor()


@contextmanager
def fast_products(device: torch.device) -> Iterator[None]:
    """Let a GPU round the factors of products in fp32 to 11 bits (TF32) for a while: training does not mind."""
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
    said = str(error)
    return isinstance(error, RuntimeError) and ("can't allocate memory" in said or "out of memory" in said)


@contextmanager
def memory_guard(what: str, remedy: str) -> Iterator[None]:
    """Raise DeviceMemoryError if the device runs out of memory, with what was done and the remedy."""
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
