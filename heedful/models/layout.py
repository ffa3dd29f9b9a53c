"""How weights lie in memory."""

from __future__ import annotations

from torch import nn

from heedful.models.transformer import Transformer

__all__ = ["lay_out"]


def lay_out(model: nn.Module, decoding: bool = True) -> None:
    """Lay the matrices of a model out for decoding, or as they were.

    A step of decoding is products of one to a hundred rows with large matrices. On a CPU these are faster, some twice
    as fast, when a matrix lies in memory by its inputs, W x being read as xᵀ Wᵀ. Shapes and values stay.
    """
    for module in model.modules():
        if isinstance(module, Transformer):
            module.lay_out(decoding)
        if isinstance(module, nn.Linear):
            W = module.weight.data
            module.weight.data = W.t().contiguous().t() if decoding else W.contiguous()
