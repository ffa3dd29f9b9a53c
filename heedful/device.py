"""Where to compute, and what to say when its memory is full."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

import torch

from heedful.bounded import parse_json, read_bytes
from heedful.disk import cache_folder, make_folder, write_whole
from heedful.errors import ConfigError, DeviceMemoryError, DiskError, ModelError, choose

__all__ = ["check_bf16", "fast_products", "faster_in_bf16", "memory_guard", "out_of_memory", "pick"]

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
    """Refuse bf16 on a CPU whose products in it crash.

    Some virtual machines announce matrix instructions that they do not let programs use; then the process dies without
    a word. So another process tries first.
    """
    if device.type != "cpu":
        return
    status, _ = _try_bf16()
    if status:
        raise ConfigError(
            f"products in bf16 fail on this CPU (exit status {status}); use --precision fp32, or set the "
            "environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 to keep off its matrix instructions"
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
    """Turn the device's running out of memory into an error that says in what, and what helps."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise DeviceMemoryError(f"{what}: the device ran out of memory; {remedy}") from None
    except RuntimeError as error:
        if out_of_memory(error):
            raise DeviceMemoryError(f"{what}: out of memory; {remedy}") from None
        raise
