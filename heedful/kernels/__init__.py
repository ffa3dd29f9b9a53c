"""Fused kernels in Triton for what training does most often on a GPU, each with the signature of its pure reference.

launch (when a kernel is compiled, and where) · chance (masks of dropout) · word_loss (cross-entropy and R-Drop with
their gradient) · residual (sum, dropout and LN) · activation (bias, ReLU and dropout)
"""

from heedful.kernels.activation import relu_dropout
from heedful.kernels.chance import Chance
from heedful.kernels.launch import usable
from heedful.kernels.residual import residual_norm
from heedful.kernels.word_loss import scaled_, word_losses

__all__ = ["Chance", "relu_dropout", "residual_norm", "scaled_", "usable", "word_losses"]
