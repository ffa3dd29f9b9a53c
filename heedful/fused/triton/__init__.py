"""Kernels in Triton, each with the signature of its definition.

launch (when a kernel is compiled) · policy (which implementation is used, and why)
training: token_loss (cross-entropy and R-Drop with their gradient) · sublayers (residual sum, dropout and LN; bias,
ReLU and dropout)
recurrence: unrolled (the steps of `heedful.fused.cpu.recurrence`) · recurrent_cells (a step of LSTM and GRU) ·
recurrent_attention (a query)
attention: additive (Bahdanau's over all T · S) · scaled (PyTorch's, with weights that can be read: by scaled_plain or
by scaled_kernels)
"""

__all__: list[str] = []
