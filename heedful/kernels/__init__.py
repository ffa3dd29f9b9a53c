"""Fused kernels in Triton for what training does most often on a GPU, each with the signature of its pure reference.

launch (when a kernel is compiled, and where) · chance (masks of dropout) · word_loss (cross-entropy and R-Drop with
their gradient) · residual (sum, dropout and LN) · activation (bias, ReLU and dropout) · scaled (PyTorch's
attention, with weights that can be read: scaled_weights, by scaled_plain or by scaled_pass and scaled_top) · policy
(which way is taken, and why)
"""

from heedful.kernels.activation import relu_dropout
from heedful.kernels.additive import additive_attend, additive_weights
from heedful.kernels.chance import Chance
from heedful.kernels.launch import usable
from heedful.kernels.policy import paths
from heedful.kernels.residual import residual_norm
from heedful.kernels.scaled import scaled_attend
from heedful.kernels.scaled_plain import Summary, Top
from heedful.kernels.scaled_weights import ScaledWeights
from heedful.kernels.word_loss import scaled_, word_losses

__all__ = [
    "Chance",
    "ScaledWeights",
    "Summary",
    "Top",
    "paths",
    "relu_dropout",
    "residual_norm",
    "scaled_",
    "scaled_attend",
    "usable",
    "word_losses",
]
