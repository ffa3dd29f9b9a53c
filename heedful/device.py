"""Where to compute, and what to say when its memory is full."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from heedful.errors import ConfigError, DeviceMemoryError, choose

__all__ = ["memory_guard", "pick"]


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
