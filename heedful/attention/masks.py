"""Draws the masks of `heedful.attention`: `python -m heedful.attention.masks`."""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.attention import causal, until


def picture(keep: Tensor) -> str:
    """Return a mask of two axes as text, a row for each query: ██ may be attended to, ·· may not."""
    return "\n".join("".join("██" if kept else "··" for kept in row) for row in keep.tolist())


if __name__ == "__main__":
    print("until([2, 4, 1]): attend to the tokens of each sentence of a batch, not to its padding")
    print(picture(until(torch.tensor([2, 4, 1]))))
    print("\ncausal(5): each token attends to itself and those before it")
    print(picture(causal(5)[0]))
