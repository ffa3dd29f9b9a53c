"""Fused kernels in Triton for what training does most often on a GPU, each with the signature of its pure reference.

launch (when a kernel is compiled, and where) · chance (masks of dropout) · word_loss (cross-entropy and R-Drop with
their gradient) · residual (sum, dropout and LN) · activation (bias, ReLU and dropout) · additive (Bahdanau's attention
over all T · S; its kernels are in additive_rows and additive_tiles)
"""

from heedful.kernels.activation import relu_dropout
from heedful.kernels.additive import additive_attend, additive_weights
from heedful.kernels.chance import Chance
from heedful.kernels.launch import Path, path, paths, usable
from heedful.kernels.residual import residual_norm
from heedful.kernels.word_loss import scaled_, word_losses

__all__ = [
    "Chance",
    "Path",
    "additive_attend",
    "additive_weights",
    "path",
    "paths",
    "relu_dropout",
    "residual_norm",
    "scaled_",
    "usable",
    "word_losses",
]
