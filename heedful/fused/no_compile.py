"""Functions that torch.compile skips: those that launch kernels themselves, or write into their own buffers."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

__all__ = ["no_compile"]

P = ParamSpec("P")
R = TypeVar("R")


def no_compile(function: Callable[P, R]) -> Callable[P, R]:
    """Make torch.compile leave a function as it is.

    `torch.compiler.disable` does that, but loads the whole compiler; here it is asked only where somebody compiles.
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
