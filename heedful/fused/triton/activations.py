"""σ and tanh for kernels, by exp alone: Triton's interpreter has nothing else, and a GPU's exp is fast.

Both are right to about one rounding of 1 (6e-8 in fp32), not of the result. PTX's `tanh.approx` is twice as fast, and
right to 5e-4 only.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

from heedful.fused.triton.launch import part

if TYPE_CHECKING:
    import triton.language as tl

__all__ = ["sigma", "tanh"]


@part
def sigma(x) -> tl.tensor:
    """1 / (1 + exp(-x)): 0 and 1 at the ends, since exp becomes infinite or 0 there."""
    return 1 / (1 + tl.exp(-x))


@part
def tanh(x) -> tl.tensor:
    """1 - 2 / (1 + exp(2x)): -1 and 1 at the ends."""
    return 1 - 2 / (1 + tl.exp(2 * x))
