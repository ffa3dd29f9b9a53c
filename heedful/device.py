"""Where to compute, and what to say when its memory is full."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from heedful.errors import ConfigError, DeviceMemoryError, choose

__all__ = ["check_bf16", "memory_guard", "pick"]


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
    trial = "import torch; a = torch.ones(512, 512, dtype=torch.bfloat16); a @ a"
    done = subprocess.run([sys.executable, "-c", trial], capture_output=True, check=False)
    if done.returncode:
        raise ConfigError(
            f"products in bf16 fail on this CPU (exit status {done.returncode}); use --precision fp32, or set the "
            "environment variable ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 to keep off its matrix instructions"
        )


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
