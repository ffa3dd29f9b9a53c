"""When a kernel is compiled, and where kernels are used at all.

Triton is heavy, and most machines have no use for it. So a kernel is a plain function until it is first launched; only
then is Triton loaded, and put as `tl` into the module where the kernel is written.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from heedful.errors import ConfigError, choose

if TYPE_CHECKING:
    import triton.language as tl

__all__ = ["Kernel", "Part", "Path", "interpreted", "kernel", "part", "path", "paths", "power_of_2", "usable"]

SWITCH = "HEEDFUL_KERNELS"
WAYS = ("auto", "kernel", "reference")


class Part:
    """A function in Triton's language that kernels call."""

    def __init__(self, function: Callable[..., Any], varying: Sequence[str] = ()) -> None:
        self.function, self.varying = function, tuple(varying)
        self.compiled: Any = None

    def jit(self) -> Any:  # noqa: ANN401  (Triton has no types)
        """Return Triton's own object, with all that it calls made ready."""
        if self.compiled is None:
            import triton
            import triton.language

            self.compiled = triton.jit(self.function, do_not_specialize=self.varying)
            names = self.function.__globals__
            names["tl"] = triton.language
            for name, value in list(names.items()):
                if type(value) is Part:
                    names[name] = value.jit()
        return self.compiled


class Kernel(Part):
    """A function that is launched: `kernel[grid](…)`.

    `varying` are integers that differ from batch to batch: for any other Triton compiles anew when it is 1 or a
    multiple of 16, which is faster for strides but takes seconds.
    """

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        """Return what launches the kernel, grid[0] · grid[1] · … times side by side."""
        # Said aloud: what Triton does when nothing is said changes with its version.
        return partial(self.jit()[grid], enable_fp_fusion=True)


def part(function: Callable[..., Any]) -> Any:  # noqa: ANN401  (in a kernel it is called, and Triton's by then)
    """Make a function a part of kernels."""
    return Part(function)


def kernel(*varying: str) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a function a kernel: `@kernel("rows")`."""
    return lambda function: Kernel(function, varying)


def power_of_2(n: int) -> int:
    """Return the smallest power of 2 that is n or more: blocks have such sizes."""
    return 1 << max(0, n - 1).bit_length()


def interpreted() -> bool:
    """Whether kernels are interpreted on the CPU, to be tested, rather than compiled for a GPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


class Path(NamedTuple):
    """Which way is gone on a device, "kernel" or "reference", and why."""

    device: str
    way: str
    why: str


def path(device: torch.device | str, how: str = "auto") -> Path:
    """Return which way is gone on a device when somebody says `how`: auto, kernel or reference.

    This is the one place where it is decided. Left open, it is the kernels where there are a GPU, Triton, and
    HEEDFUL_KERNELS `on`: they are off unless asked for until they have been measured on a GPU. Kernels that were asked
    for and cannot run are an error.
    """
    choose("way (how)", how, WAYS)
    place = str(device)
    if how == "reference":
        return Path(place, how, "asked for")
    if how == "auto" and (off := _switched_off(place)):
        return Path(place, "reference", off)
    if missing := _missing(place):
        if how == "kernel":
            raise ConfigError(f"kernels cannot run on {place}: {missing}; choose how='auto' or how='reference'")
        return Path(place, "reference", missing)
    return Path(place, "kernel", "asked for" if how == "kernel" else f"{SWITCH}=on")


def paths() -> list[Path]:
    """Return which way is gone on every device of this machine when the choice is left open."""
    return [path(name) for name in ("cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count())))]


def usable(x: Tensor) -> bool:
    """Whether kernels can and may work on this tensor, when nobody said how: see `path`."""
    return x.is_cuda and path(x.device).way == "kernel"


def _switched_off(place: str) -> str:
    """Why the choice falls on the reference before anything is tried, or nothing."""
    if not place.startswith("cuda"):
        return "kernels are for CUDA devices"
    return "" if os.environ.get(SWITCH, "off") == "on" else f"{SWITCH} is not 'on'"


def _missing(place: str) -> str:
    """What keeps kernels from running on a device, or nothing."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    if interpreted():
        return ""
    if not place.startswith("cuda"):
        return "kernels need a CUDA device"
    return "" if _work_on(torch.device(place)) else "Triton does not work there"


# torch.compile asks once and takes the answer for good, rather than look inside; to say so by its own decorator,
# torch.compiler.assume_constant_result, would load the compiler, which takes seconds.
_missing._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _work_on(device: torch.device) -> bool:
    """Find out with a kernel that does next to nothing: Triton needs a C compiler, too, and not too old a GPU."""
    if find_spec("triton") is None:
        return False
    try:
        one = torch.zeros(1, device=device)
        with torch.cuda.device(device):
            _trial[(1,)](one)
        return one.item() == 1
    except Exception as error:  # whatever it is, there is another way
        reason = " ".join(str(error).split())[:200]
        warnings.warn(
            f"Triton's kernels do not work here ({type(error).__name__}: {reason}); PyTorch's own operations are "
            f"used, which are slower. {SWITCH}=off says nothing of it.",
            RuntimeWarning,
            stacklevel=3,
        )
        return False


@kernel()
def _trial(x) -> None:  # type: ignore[no-untyped-def]
    tl.store(x, 1.0)
