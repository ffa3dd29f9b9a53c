"""Where the masks of dropout come from: Philox, numbered by the element, with a key that is drawn on the device.

A recorded step runs the same kernels with the same arguments again, so what is random has to come from the device's
memory. The key is drawn there by PyTorch's own generator, once in a pass over the data; a replay draws another one, and
what it is follows from `torch.manual_seed` as everything else does, so that a resumed run computes the same. The masks
of a pass differ by their number, which is added to the key. Nothing is kept for the backward pass: the same key,
number and element give the same again.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from heedful.fused.triton.launch import part

if TYPE_CHECKING:
    import triton.language as tl

__all__ = ["DropoutMasks", "stays"]


class DropoutMasks:
    """The chance of one pass: a key on the device, and how many masks were made from it."""

    def __init__(self, device: torch.device) -> None:
        self.key: Tensor = torch.empty(1, dtype=torch.int64, device=device).random_()
        self.masks = 0

    def next(self) -> int:
        """Return the number of the next mask."""
        self.masks += 1
        return self.masks


@part
def stays(key, mask, rows, p, BLOCK: tl.constexpr) -> tl.tensor:
    """0 for what is left out, 1/(1-p) for what stays.  rows (R,) -> (R, BLOCK)."""
    quarter = tl.arange(0, BLOCK // 4)
    # Four numbers come from one count.
    count = rows[:, None] * (BLOCK // 4) + quarter[None, :]
    a, b, c, d = tl.rand4x(tl.load(key) + mask, count)
    drawn = tl.reshape(tl.join(tl.join(a, b), tl.join(c, d)), [rows.shape[0], BLOCK])
    return tl.where(drawn >= p, 1 / (1 - p), 0.0)
