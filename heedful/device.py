"""Where to compute, and what to say when its memory is full."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

from heedful.errors import ConfigError, DeviceMemoryError, choose

__all__ = ["check_bf16", "fast_products", "faster_in_bf16", "memory_guard", "pick"]

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
    """Return another process's exit status after products in bf16, and how much faster they were than in fp32."""
    done = subprocess.run([sys.executable, "-c", TRIAL], capture_output=True, check=False, text=True)
    return done.returncode, float(done.stdout or 0.0)


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


@contextmanager
def memory_guard(what: str, remedy: str) -> Iterator[None]:
    """Turn the device's running out of memory into an error that says in what, and what helps."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise DeviceMemoryError(f"{what}: the device ran out of memory; {remedy}") from None
    except RuntimeError as error:
        # The CPU's allocator and MPS have no error class of their own.
        if "can't allocate memory" in str(error) or "out of memory" in str(error):
            raise DeviceMemoryError(f"{what}: out of memory; {remedy}") from None
        raise
