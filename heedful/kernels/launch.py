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
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    import triton.language as tl

__all__ = ["Kernel", "Part", "interpreted", "kernel", "part", "power_of_2", "usable"]

SWITCH = "HEEDFUL_KERNELS"


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


def usable(x: Tensor) -> bool:
    """Whether kernels can and may work on this tensor: a GPU, Triton, and HEEDFUL_KERNELS `on`.

    They are off unless asked for until they have been measured on a GPU.
    """
    return x.is_cuda and os.environ.get(SWITCH, "off") == "on" and _work_on(x.device)


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
