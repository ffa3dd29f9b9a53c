"""Fused kernels in Triton, each with the signature of its pure reference.

launch (when a kernel is compiled) · policy (which way is taken, and why) · aside (what torch.compile goes round)

For training: chance (masks of dropout) · word_loss (cross-entropy and R-Drop with their gradient) · residual (sum,
dropout and LN) · activation (bias, ReLU and dropout). The recurrence: recurrence_cells (a step of LSTM and GRU) ·
recurrence_attention (a question to a memory) · steps (what both ask of their tensors) · curves (σ, tanh). Attention:
additive (Bahdanau's over all T · S: additive_rows, additive_tiles) · scaled (PyTorch's, with weights that can be read:
scaled_weights, by scaled_plain or by scaled_pass and scaled_top)
"""

from heedful.kernels.activation import relu_dropout
from heedful.kernels.additive import additive_attend, additive_weights
from heedful.kernels.aside import aside
from heedful.kernels.chance import Chance
from heedful.kernels.policy import Path, path, paths, usable
from heedful.kernels.recurrence_attention import Questions, answer, askable
from heedful.kernels.recurrence_cells import GruSteps, LstmSteps, gru_cell, lstm_cell
from heedful.kernels.residual import residual_norm
from heedful.kernels.scaled import scaled_attend
from heedful.kernels.scaled_plain import Summary, Top
from heedful.kernels.scaled_weights import ScaledWeights
from heedful.kernels.steps import steppable
from heedful.kernels.word_loss import scaled_, word_losses

__all__ = [
    "Chance",
    "GruSteps",
    "LstmSteps",
    "Path",
    "Questions",
    "ScaledWeights",
    "Summary",
    "Top",
    "additive_attend",
    "additive_weights",
    "answer",
    "aside",
    "askable",
    "gru_cell",
    "lstm_cell",
    "path",
    "paths",
    "relu_dropout",
    "residual_norm",
    "scaled_",
    "scaled_attend",
    "steppable",
    "usable",
    "word_losses",
]
