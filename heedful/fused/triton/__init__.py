"""Kernels in Triton, each with the signature of its definition.

launch (when a kernel is compiled) · policy (which implementation is used, and why)
training: dropout_mask · token_loss (cross-entropy and R-Drop with their gradient) · residual (sum, dropout and LN) ·
feed_forward (bias, ReLU and dropout)
recurrence: unrolled (the steps of `heedful.fused.cpu.recurrence`) · recurrent_cells (a step of LSTM and GRU) ·
recurrent_attention (a query) · steps (what both require of their tensors) · activations (σ, tanh)
attention: additive (Bahdanau's over all T · S) · scaled (PyTorch's, with weights that can be read: by scaled_plain or
by scaled_kernels)
"""

from heedful.fused.triton.additive import additive_attend, additive_weights, kernel_attend
from heedful.fused.triton.dropout_mask import DropoutMasks
from heedful.fused.triton.feed_forward import relu_dropout
from heedful.fused.triton.policy import Path, path, paths, usable
from heedful.fused.triton.recurrent_attention import AttendSteps, attend_step, attendable
from heedful.fused.triton.recurrent_cells import GruSteps, LstmSteps, gru_cell, lstm_cell
from heedful.fused.triton.residual import residual_norm
from heedful.fused.triton.scaled import ScaledWeights, scaled_attend
from heedful.fused.triton.scaled_plain import Summary, Top
from heedful.fused.triton.steps import steppable
from heedful.fused.triton.token_loss import scaled_, token_losses

__all__ = [
    "AttendSteps",
    "DropoutMasks",
    "GruSteps",
    "LstmSteps",
    "Path",
    "ScaledWeights",
    "Summary",
    "Top",
    "additive_attend",
    "additive_weights",
    "attend_step",
    "attendable",
    "gru_cell",
    "kernel_attend",
    "lstm_cell",
    "path",
    "paths",
    "relu_dropout",
    "residual_norm",
    "scaled_",
    "scaled_attend",
    "steppable",
    "token_losses",
    "usable",
]
