"""Kernels in Triton, each with the signature of its definition.

launch (when a kernel is compiled) · policy (which implementation is used, and why)
training: token_loss (cross-entropy and R-Drop with their gradient) · sublayers (residual sum, dropout and LN; bias,
ReLU and dropout)
recurrence: unrolled (the steps of `heedful.fused.cpu.recurrence`) · recurrent_cells (a step of LSTM and GRU) ·
recurrent_attention (a query)
attention: additive (Bahdanau's over all T · S) · scaled (PyTorch's, with weights that can be read: by scaled_plain or
by scaled_kernels)
"""

from heedful.fused.triton.additive import additive_attend, additive_weights, kernel_attend
from heedful.fused.triton.policy import Path, path, paths, usable
from heedful.fused.triton.recurrent_attention import AttendSteps, attend_step, attendable
from heedful.fused.triton.recurrent_cells import GruSteps, LstmSteps, gru_cell, lstm_cell, steppable
from heedful.fused.triton.sublayers import DropoutMasks, relu_dropout, residual_norm
from heedful.fused.triton.token_loss import scaled_, token_losses

__all__ = [
    "AttendSteps",
    "DropoutMasks",
    "GruSteps",
    "LstmSteps",
    "Path",
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
    "steppable",
    "token_losses",
    "usable",
]
