"""The operations of `heedful.attention` and of the models, fast. Each is tested against its definition.

unrolled (a recurrent encoder or decoder over all steps, as one operation) · cpu/ (its steps with their gradients; the
Transformer's encoder and decoder with few operations; packed weights) · triton/ (kernels, and `policy`, which decides
where they are used) · bf16_weights · no_compile (what torch.compile skips). A score declares its fast version by
`Score.fused`.
"""

from heedful.fused.no_compile import no_compile
from heedful.fused.triton import (
    DropoutMasks,
    Path,
    ScaledWeights,
    Summary,
    Top,
    additive_attend,
    attend_step,
    attendable,
    gru_cell,
    lstm_cell,
    path,
    paths,
    relu_dropout,
    residual_norm,
    scaled_,
    scaled_attend,
    steppable,
    token_losses,
    usable,
)
from heedful.fused.unrolled import (
    DecoderOutput,
    DecoderSpec,
    Tensors,
    reverse_sentences,
    unrolled_decoder,
    unrolled_encoder,
)

__all__ = [
    "DecoderOutput",
    "DecoderSpec",
    "DropoutMasks",
    "Path",
    "ScaledWeights",
    "Summary",
    "Tensors",
    "Top",
    "additive_attend",
    "attend_step",
    "attendable",
    "gru_cell",
    "lstm_cell",
    "no_compile",
    "path",
    "paths",
    "relu_dropout",
    "residual_norm",
    "reverse_sentences",
    "scaled_",
    "scaled_attend",
    "steppable",
    "token_losses",
    "unrolled_decoder",
    "unrolled_encoder",
    "usable",
]
