"""When a kernel is compiled, how it is launched, and `no_compile` for functions that torch.compile skips.

Triton is heavy, and most machines have no use for it. So a kernel is a plain function until it is first launched; only
then is Triton loaded, and put as `tl` into the module where the kernel is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import torch


class JitFunction:
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
                if type(value) is JitFunction:
                    names[name] = value.jit()
        return self.compiled


class Kernel(JitFunction):
    """A function that is launched: `kernel[grid](…)`.

    `varying` are integers that differ from batch to batch: for any other Triton compiles anew when it is 1 or a
    multiple of 16, which is faster for strides but takes seconds.
    """

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        """Return what launches the kernel, grid[0] · grid[1] · … times side by side."""
        # Explicit, because Triton's default changes with its version.
        return partial(self.jit()[grid], enable_fp_fusion=True)


def part(function: Callable[..., Any]) -> Any:  # noqa: ANN401  (in a kernel it is called, and Triton's by then)
    """Make a function a part of kernels."""
    return JitFunction(function)


def kernel(*varying: str) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a function a kernel: `@kernel("rows")`."""
    return lambda function: Kernel(function, varying)


def power_of_2(n: int) -> int:
    """Return the smallest power of 2 that is n or more: blocks have such sizes."""
    return 1 << max(0, n - 1).bit_length()


def interpreted() -> bool:
    """Whether kernels are interpreted on the CPU, to be tested, rather than compiled for a GPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


P = ParamSpec("P")
R = TypeVar("R")


def no_compile(function: Callable[P, R]) -> Callable[P, R]:
    """Make torch.compile leave a function as it is.

    `torch.compiler.disable` does that, but loads the whole compiler; here it is called only while compiling.
    """
    disabled: list[Callable[P, R]] = []

    @wraps(function)
    def call(*args: P.args, **options: P.kwargs) -> R:
        if not torch.compiler.is_compiling():
            return function(*args, **options)
        if not disabled:
            disabled.append(torch.compiler.disable(function))  # type: ignore[no-untyped-call]
        return disabled[0](*args, **options)

    return call
