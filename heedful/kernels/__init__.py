"""Fused kernels in Triton for what training does most often on a GPU, each with the signature of its pure reference.

launch (when a kernel is compiled, and where) · chance (masks of dropout) · word_loss (cross-entropy and R-Drop with
their gradient) · residual (sum, dropout and LN) · activation (bias, ReLU and dropout) ·
recurrence_cells (a step of LSTM and GRU) · recurrence_attention (a question to a memory) · steps (what both ask of
their tensors) · curves (σ, tanh) ·
aside (what torch.compile goes round)
"""

from heedful.kernels.activation import relu_dropout
from heedful.kernels.aside import aside
from heedful.kernels.chance import Chance
from heedful.kernels.launch import usable
from heedful.kernels.recurrence_attention import Questions, answer, askable
from heedful.kernels.recurrence_cells import GruSteps, LstmSteps, gru_cell, lstm_cell
from heedful.kernels.residual import residual_norm
from heedful.kernels.steps import steppable
from heedful.kernels.word_loss import scaled_, word_losses

__all__ = [
    "Chance",
    "GruSteps",
    "LstmSteps",
    "Questions",
    "answer",
    "aside",
    "askable",
    "gru_cell",
    "lstm_cell",
    "relu_dropout",
    "residual_norm",
    "scaled_",
    "steppable",
    "usable",
    "word_losses",
]
